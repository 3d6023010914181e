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

#define BUFFER(h, f, i) @id(BUFFER_REGISTER(i)) register<chunk_t>(SLOTS) buffer##i;

#define STORE(h, f, i) buffer##i.write(meta.slot, hdr.h.f);
#define LOAD(h, f, i)  buffer##i.read(hdr.h.f, meta.slot);
#define HOLD(h, f, i)  buffer##i.read(held, meta.slot);
// Lane-wise comparison (Hacker's Delight, 2-18): with `top` the top bit of every lane, the borrow-free difference says in
// each lane's top bit whether ours >= held; that bit is then widened to a mask of its lane.
#define COMPARE(h, f, i) low = (hdr.h.f | top) - (held & ~top); \
                       wins = ((hdr.h.f & ~held) | (~(hdr.h.f ^ held) & low)) & top; \
                       wins = (wins - (wins >> shift)) | wins;

// The operations themselves (SUM, MIN and so on, OPERATIONS and COMBINE) are in wire.p4: a row of the schema each.
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
            if (RECORD_CHUNKS(meta.record) != 0 || RECORD_STATE(meta.record) == STATE_DONE) {
                drop_payload.apply(hdr);
            }
            if (RECORD_CHUNKS(meta.record)[4:4] == 1) { load16(); }
            if (RECORD_CHUNKS(meta.record)[3:3] == 1) { load8(); }
            if (RECORD_CHUNKS(meta.record)[2:2] == 1) { load4(); }
            if (RECORD_CHUNKS(meta.record)[1:1] == 1) { load2(); }
            if (RECORD_CHUNKS(meta.record)[0:0] == 1) { load1(); }
        } else if (meta.combine != COMBINE_NOTHING) {
            if (OP_COMPARES(hdr.netsum.op)) {
                shift = (8w8 << hdr.netsum.lane) - 1;
                if (hdr.netsum.lane == LANE_L8)       { top = TOP_BITS_8; }
                else if (hdr.netsum.lane == LANE_L16) { top = TOP_BITS_16; }
                else if (hdr.netsum.lane == LANE_L32) { top = TOP_BITS_32; }
                else                                  { top = TOP_BITS_64; }
            }
            if (RECORD_CHUNKS(meta.record)[4:4] == 1) {
                COMBINE(16)
            } else {
                if (RECORD_CHUNKS(meta.record)[3:3] == 1) { COMBINE(8) }
                if (RECORD_CHUNKS(meta.record)[2:2] == 1) { COMBINE(4) }
                if (RECORD_CHUNKS(meta.record)[1:1] == 1) { COMBINE(2) }
                if (RECORD_CHUNKS(meta.record)[0:0] == 1) { COMBINE(1) }
            }
        }
    }
}
