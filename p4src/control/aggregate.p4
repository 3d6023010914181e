// SPDX-License-Identifier: MIT
// The gradients: one addition per 2048-bit chunk. Hosts bias their lanes so that no sum carries from one lane into the
// next; the switch needs no mask, no lane width and no loop.
//
// A payload of k chunks is the headers that the bits of k name (see headers.p4); each header has buffer registers of
// its own kind, and since a block's size is fixed by its first payload, all contributions of a block meet in the same ones.

#define EACH1(DO, h)  DO(h, f0, 14)
#define EACH2(DO, h)  DO(h, f0, 12) DO(h, f1, 13)
#define EACH4(DO, h)  DO(h, f0, 8) DO(h, f1, 9) DO(h, f2, 10) DO(h, f3, 11)
#define EACH8(DO, h)  DO(h, f0, 0) DO(h, f1, 1) DO(h, f2, 2) DO(h, f3, 3) \
                      DO(h, f4, 4) DO(h, f5, 5) DO(h, f6, 6) DO(h, f7, 7)
#define EACH16(DO, h) EACH8(DO, h) DO(h, f8, 8) DO(h, f9, 9) DO(h, f10, 10) DO(h, f11, 11) \
                      DO(h, f12, 12) DO(h, f13, 13) DO(h, f14, 14) DO(h, f15, 15)

// Whether the header of n chunks is part of the block's payload.
#define WITH(n) ((meta.record & AS_CHUNKS(n)) != 0)

#define BUFFER(h, f, i) @id(BUFFER_REGISTER(i)) register<chunk_t, bit<32>>(SLOTS) buffer##i;

#define STORE(h, f, i) buffer##i.write(meta.slot, hdr.h.f);
#define LOAD(h, f, i)  buffer##i.read(hdr.h.f, meta.slot);
#define HOLD(h, f, i)  buffer##i.read(held, meta.slot);
// Lane-wise comparison (Hacker's Delight, 2-18): with `top` the top bit of every lane, the borrow-free difference says in
// each lane's top bit whether ours >= held; that bit is then widened to a mask of its lane.
#define COMPARE(h, f, i) low = (hdr.h.f | top) - (held & ~top); \
                       wins = ((hdr.h.f & ~held) | (~(hdr.h.f ^ held) & low)) & top; \
                       wins = (wins - (wins >> shift)) | wins;

// The operations themselves (SUM, MIN and so on, OPERATIONS and COMBINE) are in types.p4: a row of the schema each.
#define ACTIONS(n) \
    action store##n() { EACH##n(STORE, chunks##n) } \
    action load##n()  { hdr.chunks##n.setValid(); EACH##n(LOAD, chunks##n) } \
    OPERATIONS(n)

control Aggregate(inout headers_t hdr, in metadata_t meta) {
    DropPayload() drop_payload;
    EACH16(BUFFER, chunks16)
    chunk_t held;   // what the slot holds
    chunk_t low;    // per lane: did the low bits borrow
    chunk_t wins;   // per lane: does ours win
    chunk_t top;    // the top bit of every lane
    bit<8>  shift;  // lane width - 1

    ACTIONS(16)
    ACTIONS(8)
    ACTIONS(4)
    ACTIONS(2)
    ACTIONS(1)

    apply {
        if (meta.combine == COMBINE_LOAD) {
            // What came in with the asking packet makes room for what the slot holds. But a partial without payload keeps
            // the room of its packet: the result may need it.
            if (!HAS_CHUNKS(meta.record, 0) || HAS_STATE(meta.record, STATE_DONE)) {
                drop_payload.apply(hdr);
            }
            if (WITH(16)) { load16(); }
            if (WITH(8)) { load8(); }
            if (WITH(4)) { load4(); }
            if (WITH(2)) { load2(); }
            if (WITH(1)) { load1(); }
        } else if (meta.combine != COMBINE_NOTHING) {
            if (OP_COMPARES(hdr.netsum.op)) {
                shift = (8w8 << hdr.netsum.lane) - 1;
                if (hdr.netsum.lane == LANE_L8)       { top = TOP_BITS_8; }
                else if (hdr.netsum.lane == LANE_L16) { top = TOP_BITS_16; }
                else if (hdr.netsum.lane == LANE_L32) { top = TOP_BITS_32; }
                else                                  { top = TOP_BITS_64; }
            }
            if (WITH(16)) {
                COMBINE(16)
            } else {
                if (WITH(8)) { COMBINE(8) }
                if (WITH(4)) { COMBINE(4) }
                if (WITH(2)) { COMBINE(2) }
                if (WITH(1)) { COMBINE(1) }
            }
        }
    }
}
