// SPDX-License-Identifier: MIT
// Generated from hosts/netsum/wire/schema.py by `make p4`. Do not edit.
// The gradients: one addition per 2048-bit chunk. Hosts bias their lanes so that no sum carries from one lane into the
// next; the switch needs no mask, no lane width and no loop.
//
// A payload of k chunks is the headers that the bits of k name (see headers.p4). MIN and MAX compare lane by lane (Hacker's
// Delight, 2-18): with `top` the top bit of every lane, the borrow-free difference `low` says in each lane's top bit whether
// ours >= held; that bit is then widened to `wins`, a mask of its lane.

// Whether the header of n chunks is part of the block's payload.
#define WITH(n) ((meta.record & AS_CHUNKS(n)) != 0)

control Aggregate(inout headers_t hdr, in metadata_t meta) {
    DropPayload() drop_payload;
    chunk_t held;   // what the slot holds
    chunk_t low;    // per lane: did the low bits borrow
    chunk_t wins;   // per lane: does ours win
    chunk_t top;    // the top bit of every lane
    bit<8>  shift;  // lane width - 1
    @id(BUFFER_REGISTER(0)) register<chunk_t, bit<32>>(SLOTS) buffer0;
    @id(BUFFER_REGISTER(1)) register<chunk_t, bit<32>>(SLOTS) buffer1;
    @id(BUFFER_REGISTER(2)) register<chunk_t, bit<32>>(SLOTS) buffer2;
    @id(BUFFER_REGISTER(3)) register<chunk_t, bit<32>>(SLOTS) buffer3;
    @id(BUFFER_REGISTER(4)) register<chunk_t, bit<32>>(SLOTS) buffer4;
    @id(BUFFER_REGISTER(5)) register<chunk_t, bit<32>>(SLOTS) buffer5;
    @id(BUFFER_REGISTER(6)) register<chunk_t, bit<32>>(SLOTS) buffer6;
    @id(BUFFER_REGISTER(7)) register<chunk_t, bit<32>>(SLOTS) buffer7;
    @id(BUFFER_REGISTER(8)) register<chunk_t, bit<32>>(SLOTS) buffer8;
    @id(BUFFER_REGISTER(9)) register<chunk_t, bit<32>>(SLOTS) buffer9;
    @id(BUFFER_REGISTER(10)) register<chunk_t, bit<32>>(SLOTS) buffer10;
    @id(BUFFER_REGISTER(11)) register<chunk_t, bit<32>>(SLOTS) buffer11;
    @id(BUFFER_REGISTER(12)) register<chunk_t, bit<32>>(SLOTS) buffer12;
    @id(BUFFER_REGISTER(13)) register<chunk_t, bit<32>>(SLOTS) buffer13;
    @id(BUFFER_REGISTER(14)) register<chunk_t, bit<32>>(SLOTS) buffer14;
    @id(BUFFER_REGISTER(15)) register<chunk_t, bit<32>>(SLOTS) buffer15;

    action store16() {
        buffer0.write(meta.slot, hdr.chunks16.f0);
        buffer1.write(meta.slot, hdr.chunks16.f1);
        buffer2.write(meta.slot, hdr.chunks16.f2);
        buffer3.write(meta.slot, hdr.chunks16.f3);
        buffer4.write(meta.slot, hdr.chunks16.f4);
        buffer5.write(meta.slot, hdr.chunks16.f5);
        buffer6.write(meta.slot, hdr.chunks16.f6);
        buffer7.write(meta.slot, hdr.chunks16.f7);
        buffer8.write(meta.slot, hdr.chunks16.f8);
        buffer9.write(meta.slot, hdr.chunks16.f9);
        buffer10.write(meta.slot, hdr.chunks16.f10);
        buffer11.write(meta.slot, hdr.chunks16.f11);
        buffer12.write(meta.slot, hdr.chunks16.f12);
        buffer13.write(meta.slot, hdr.chunks16.f13);
        buffer14.write(meta.slot, hdr.chunks16.f14);
        buffer15.write(meta.slot, hdr.chunks16.f15);
    }
    action load16() {
        hdr.chunks16.setValid();
        buffer0.read(hdr.chunks16.f0, meta.slot);
        buffer1.read(hdr.chunks16.f1, meta.slot);
        buffer2.read(hdr.chunks16.f2, meta.slot);
        buffer3.read(hdr.chunks16.f3, meta.slot);
        buffer4.read(hdr.chunks16.f4, meta.slot);
        buffer5.read(hdr.chunks16.f5, meta.slot);
        buffer6.read(hdr.chunks16.f6, meta.slot);
        buffer7.read(hdr.chunks16.f7, meta.slot);
        buffer8.read(hdr.chunks16.f8, meta.slot);
        buffer9.read(hdr.chunks16.f9, meta.slot);
        buffer10.read(hdr.chunks16.f10, meta.slot);
        buffer11.read(hdr.chunks16.f11, meta.slot);
        buffer12.read(hdr.chunks16.f12, meta.slot);
        buffer13.read(hdr.chunks16.f13, meta.slot);
        buffer14.read(hdr.chunks16.f14, meta.slot);
        buffer15.read(hdr.chunks16.f15, meta.slot);
    }
    action sum16() {
        buffer0.read(held, meta.slot); hdr.chunks16.f0 = hdr.chunks16.f0 + held; buffer0.write(meta.slot, hdr.chunks16.f0);
        buffer1.read(held, meta.slot); hdr.chunks16.f1 = hdr.chunks16.f1 + held; buffer1.write(meta.slot, hdr.chunks16.f1);
        buffer2.read(held, meta.slot); hdr.chunks16.f2 = hdr.chunks16.f2 + held; buffer2.write(meta.slot, hdr.chunks16.f2);
        buffer3.read(held, meta.slot); hdr.chunks16.f3 = hdr.chunks16.f3 + held; buffer3.write(meta.slot, hdr.chunks16.f3);
        buffer4.read(held, meta.slot); hdr.chunks16.f4 = hdr.chunks16.f4 + held; buffer4.write(meta.slot, hdr.chunks16.f4);
        buffer5.read(held, meta.slot); hdr.chunks16.f5 = hdr.chunks16.f5 + held; buffer5.write(meta.slot, hdr.chunks16.f5);
        buffer6.read(held, meta.slot); hdr.chunks16.f6 = hdr.chunks16.f6 + held; buffer6.write(meta.slot, hdr.chunks16.f6);
        buffer7.read(held, meta.slot); hdr.chunks16.f7 = hdr.chunks16.f7 + held; buffer7.write(meta.slot, hdr.chunks16.f7);
        buffer8.read(held, meta.slot); hdr.chunks16.f8 = hdr.chunks16.f8 + held; buffer8.write(meta.slot, hdr.chunks16.f8);
        buffer9.read(held, meta.slot); hdr.chunks16.f9 = hdr.chunks16.f9 + held; buffer9.write(meta.slot, hdr.chunks16.f9);
        buffer10.read(held, meta.slot); hdr.chunks16.f10 = hdr.chunks16.f10 + held; buffer10.write(meta.slot, hdr.chunks16.f10);
        buffer11.read(held, meta.slot); hdr.chunks16.f11 = hdr.chunks16.f11 + held; buffer11.write(meta.slot, hdr.chunks16.f11);
        buffer12.read(held, meta.slot); hdr.chunks16.f12 = hdr.chunks16.f12 + held; buffer12.write(meta.slot, hdr.chunks16.f12);
        buffer13.read(held, meta.slot); hdr.chunks16.f13 = hdr.chunks16.f13 + held; buffer13.write(meta.slot, hdr.chunks16.f13);
        buffer14.read(held, meta.slot); hdr.chunks16.f14 = hdr.chunks16.f14 + held; buffer14.write(meta.slot, hdr.chunks16.f14);
        buffer15.read(held, meta.slot); hdr.chunks16.f15 = hdr.chunks16.f15 + held; buffer15.write(meta.slot, hdr.chunks16.f15);
    }
    action min16() {
        buffer0.read(held, meta.slot);
        low = (hdr.chunks16.f0 | top) - (held & ~top);
        wins = ((hdr.chunks16.f0 & ~held) | (~(hdr.chunks16.f0 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f0 = (held & wins) | (hdr.chunks16.f0 & ~wins); buffer0.write(meta.slot, hdr.chunks16.f0);
        buffer1.read(held, meta.slot);
        low = (hdr.chunks16.f1 | top) - (held & ~top);
        wins = ((hdr.chunks16.f1 & ~held) | (~(hdr.chunks16.f1 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f1 = (held & wins) | (hdr.chunks16.f1 & ~wins); buffer1.write(meta.slot, hdr.chunks16.f1);
        buffer2.read(held, meta.slot);
        low = (hdr.chunks16.f2 | top) - (held & ~top);
        wins = ((hdr.chunks16.f2 & ~held) | (~(hdr.chunks16.f2 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f2 = (held & wins) | (hdr.chunks16.f2 & ~wins); buffer2.write(meta.slot, hdr.chunks16.f2);
        buffer3.read(held, meta.slot);
        low = (hdr.chunks16.f3 | top) - (held & ~top);
        wins = ((hdr.chunks16.f3 & ~held) | (~(hdr.chunks16.f3 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f3 = (held & wins) | (hdr.chunks16.f3 & ~wins); buffer3.write(meta.slot, hdr.chunks16.f3);
        buffer4.read(held, meta.slot);
        low = (hdr.chunks16.f4 | top) - (held & ~top);
        wins = ((hdr.chunks16.f4 & ~held) | (~(hdr.chunks16.f4 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f4 = (held & wins) | (hdr.chunks16.f4 & ~wins); buffer4.write(meta.slot, hdr.chunks16.f4);
        buffer5.read(held, meta.slot);
        low = (hdr.chunks16.f5 | top) - (held & ~top);
        wins = ((hdr.chunks16.f5 & ~held) | (~(hdr.chunks16.f5 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f5 = (held & wins) | (hdr.chunks16.f5 & ~wins); buffer5.write(meta.slot, hdr.chunks16.f5);
        buffer6.read(held, meta.slot);
        low = (hdr.chunks16.f6 | top) - (held & ~top);
        wins = ((hdr.chunks16.f6 & ~held) | (~(hdr.chunks16.f6 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f6 = (held & wins) | (hdr.chunks16.f6 & ~wins); buffer6.write(meta.slot, hdr.chunks16.f6);
        buffer7.read(held, meta.slot);
        low = (hdr.chunks16.f7 | top) - (held & ~top);
        wins = ((hdr.chunks16.f7 & ~held) | (~(hdr.chunks16.f7 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f7 = (held & wins) | (hdr.chunks16.f7 & ~wins); buffer7.write(meta.slot, hdr.chunks16.f7);
        buffer8.read(held, meta.slot);
        low = (hdr.chunks16.f8 | top) - (held & ~top);
        wins = ((hdr.chunks16.f8 & ~held) | (~(hdr.chunks16.f8 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f8 = (held & wins) | (hdr.chunks16.f8 & ~wins); buffer8.write(meta.slot, hdr.chunks16.f8);
        buffer9.read(held, meta.slot);
        low = (hdr.chunks16.f9 | top) - (held & ~top);
        wins = ((hdr.chunks16.f9 & ~held) | (~(hdr.chunks16.f9 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f9 = (held & wins) | (hdr.chunks16.f9 & ~wins); buffer9.write(meta.slot, hdr.chunks16.f9);
        buffer10.read(held, meta.slot);
        low = (hdr.chunks16.f10 | top) - (held & ~top);
        wins = ((hdr.chunks16.f10 & ~held) | (~(hdr.chunks16.f10 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f10 = (held & wins) | (hdr.chunks16.f10 & ~wins); buffer10.write(meta.slot, hdr.chunks16.f10);
        buffer11.read(held, meta.slot);
        low = (hdr.chunks16.f11 | top) - (held & ~top);
        wins = ((hdr.chunks16.f11 & ~held) | (~(hdr.chunks16.f11 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f11 = (held & wins) | (hdr.chunks16.f11 & ~wins); buffer11.write(meta.slot, hdr.chunks16.f11);
        buffer12.read(held, meta.slot);
        low = (hdr.chunks16.f12 | top) - (held & ~top);
        wins = ((hdr.chunks16.f12 & ~held) | (~(hdr.chunks16.f12 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f12 = (held & wins) | (hdr.chunks16.f12 & ~wins); buffer12.write(meta.slot, hdr.chunks16.f12);
        buffer13.read(held, meta.slot);
        low = (hdr.chunks16.f13 | top) - (held & ~top);
        wins = ((hdr.chunks16.f13 & ~held) | (~(hdr.chunks16.f13 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f13 = (held & wins) | (hdr.chunks16.f13 & ~wins); buffer13.write(meta.slot, hdr.chunks16.f13);
        buffer14.read(held, meta.slot);
        low = (hdr.chunks16.f14 | top) - (held & ~top);
        wins = ((hdr.chunks16.f14 & ~held) | (~(hdr.chunks16.f14 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f14 = (held & wins) | (hdr.chunks16.f14 & ~wins); buffer14.write(meta.slot, hdr.chunks16.f14);
        buffer15.read(held, meta.slot);
        low = (hdr.chunks16.f15 | top) - (held & ~top);
        wins = ((hdr.chunks16.f15 & ~held) | (~(hdr.chunks16.f15 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f15 = (held & wins) | (hdr.chunks16.f15 & ~wins); buffer15.write(meta.slot, hdr.chunks16.f15);
    }
    action max16() {
        buffer0.read(held, meta.slot);
        low = (hdr.chunks16.f0 | top) - (held & ~top);
        wins = ((hdr.chunks16.f0 & ~held) | (~(hdr.chunks16.f0 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f0 = (hdr.chunks16.f0 & wins) | (held & ~wins); buffer0.write(meta.slot, hdr.chunks16.f0);
        buffer1.read(held, meta.slot);
        low = (hdr.chunks16.f1 | top) - (held & ~top);
        wins = ((hdr.chunks16.f1 & ~held) | (~(hdr.chunks16.f1 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f1 = (hdr.chunks16.f1 & wins) | (held & ~wins); buffer1.write(meta.slot, hdr.chunks16.f1);
        buffer2.read(held, meta.slot);
        low = (hdr.chunks16.f2 | top) - (held & ~top);
        wins = ((hdr.chunks16.f2 & ~held) | (~(hdr.chunks16.f2 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f2 = (hdr.chunks16.f2 & wins) | (held & ~wins); buffer2.write(meta.slot, hdr.chunks16.f2);
        buffer3.read(held, meta.slot);
        low = (hdr.chunks16.f3 | top) - (held & ~top);
        wins = ((hdr.chunks16.f3 & ~held) | (~(hdr.chunks16.f3 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f3 = (hdr.chunks16.f3 & wins) | (held & ~wins); buffer3.write(meta.slot, hdr.chunks16.f3);
        buffer4.read(held, meta.slot);
        low = (hdr.chunks16.f4 | top) - (held & ~top);
        wins = ((hdr.chunks16.f4 & ~held) | (~(hdr.chunks16.f4 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f4 = (hdr.chunks16.f4 & wins) | (held & ~wins); buffer4.write(meta.slot, hdr.chunks16.f4);
        buffer5.read(held, meta.slot);
        low = (hdr.chunks16.f5 | top) - (held & ~top);
        wins = ((hdr.chunks16.f5 & ~held) | (~(hdr.chunks16.f5 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f5 = (hdr.chunks16.f5 & wins) | (held & ~wins); buffer5.write(meta.slot, hdr.chunks16.f5);
        buffer6.read(held, meta.slot);
        low = (hdr.chunks16.f6 | top) - (held & ~top);
        wins = ((hdr.chunks16.f6 & ~held) | (~(hdr.chunks16.f6 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f6 = (hdr.chunks16.f6 & wins) | (held & ~wins); buffer6.write(meta.slot, hdr.chunks16.f6);
        buffer7.read(held, meta.slot);
        low = (hdr.chunks16.f7 | top) - (held & ~top);
        wins = ((hdr.chunks16.f7 & ~held) | (~(hdr.chunks16.f7 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f7 = (hdr.chunks16.f7 & wins) | (held & ~wins); buffer7.write(meta.slot, hdr.chunks16.f7);
        buffer8.read(held, meta.slot);
        low = (hdr.chunks16.f8 | top) - (held & ~top);
        wins = ((hdr.chunks16.f8 & ~held) | (~(hdr.chunks16.f8 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f8 = (hdr.chunks16.f8 & wins) | (held & ~wins); buffer8.write(meta.slot, hdr.chunks16.f8);
        buffer9.read(held, meta.slot);
        low = (hdr.chunks16.f9 | top) - (held & ~top);
        wins = ((hdr.chunks16.f9 & ~held) | (~(hdr.chunks16.f9 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f9 = (hdr.chunks16.f9 & wins) | (held & ~wins); buffer9.write(meta.slot, hdr.chunks16.f9);
        buffer10.read(held, meta.slot);
        low = (hdr.chunks16.f10 | top) - (held & ~top);
        wins = ((hdr.chunks16.f10 & ~held) | (~(hdr.chunks16.f10 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f10 = (hdr.chunks16.f10 & wins) | (held & ~wins); buffer10.write(meta.slot, hdr.chunks16.f10);
        buffer11.read(held, meta.slot);
        low = (hdr.chunks16.f11 | top) - (held & ~top);
        wins = ((hdr.chunks16.f11 & ~held) | (~(hdr.chunks16.f11 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f11 = (hdr.chunks16.f11 & wins) | (held & ~wins); buffer11.write(meta.slot, hdr.chunks16.f11);
        buffer12.read(held, meta.slot);
        low = (hdr.chunks16.f12 | top) - (held & ~top);
        wins = ((hdr.chunks16.f12 & ~held) | (~(hdr.chunks16.f12 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f12 = (hdr.chunks16.f12 & wins) | (held & ~wins); buffer12.write(meta.slot, hdr.chunks16.f12);
        buffer13.read(held, meta.slot);
        low = (hdr.chunks16.f13 | top) - (held & ~top);
        wins = ((hdr.chunks16.f13 & ~held) | (~(hdr.chunks16.f13 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f13 = (hdr.chunks16.f13 & wins) | (held & ~wins); buffer13.write(meta.slot, hdr.chunks16.f13);
        buffer14.read(held, meta.slot);
        low = (hdr.chunks16.f14 | top) - (held & ~top);
        wins = ((hdr.chunks16.f14 & ~held) | (~(hdr.chunks16.f14 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f14 = (hdr.chunks16.f14 & wins) | (held & ~wins); buffer14.write(meta.slot, hdr.chunks16.f14);
        buffer15.read(held, meta.slot);
        low = (hdr.chunks16.f15 | top) - (held & ~top);
        wins = ((hdr.chunks16.f15 & ~held) | (~(hdr.chunks16.f15 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks16.f15 = (hdr.chunks16.f15 & wins) | (held & ~wins); buffer15.write(meta.slot, hdr.chunks16.f15);
    }
    action and16() {
        buffer0.read(held, meta.slot); hdr.chunks16.f0 = hdr.chunks16.f0 & held; buffer0.write(meta.slot, hdr.chunks16.f0);
        buffer1.read(held, meta.slot); hdr.chunks16.f1 = hdr.chunks16.f1 & held; buffer1.write(meta.slot, hdr.chunks16.f1);
        buffer2.read(held, meta.slot); hdr.chunks16.f2 = hdr.chunks16.f2 & held; buffer2.write(meta.slot, hdr.chunks16.f2);
        buffer3.read(held, meta.slot); hdr.chunks16.f3 = hdr.chunks16.f3 & held; buffer3.write(meta.slot, hdr.chunks16.f3);
        buffer4.read(held, meta.slot); hdr.chunks16.f4 = hdr.chunks16.f4 & held; buffer4.write(meta.slot, hdr.chunks16.f4);
        buffer5.read(held, meta.slot); hdr.chunks16.f5 = hdr.chunks16.f5 & held; buffer5.write(meta.slot, hdr.chunks16.f5);
        buffer6.read(held, meta.slot); hdr.chunks16.f6 = hdr.chunks16.f6 & held; buffer6.write(meta.slot, hdr.chunks16.f6);
        buffer7.read(held, meta.slot); hdr.chunks16.f7 = hdr.chunks16.f7 & held; buffer7.write(meta.slot, hdr.chunks16.f7);
        buffer8.read(held, meta.slot); hdr.chunks16.f8 = hdr.chunks16.f8 & held; buffer8.write(meta.slot, hdr.chunks16.f8);
        buffer9.read(held, meta.slot); hdr.chunks16.f9 = hdr.chunks16.f9 & held; buffer9.write(meta.slot, hdr.chunks16.f9);
        buffer10.read(held, meta.slot); hdr.chunks16.f10 = hdr.chunks16.f10 & held; buffer10.write(meta.slot, hdr.chunks16.f10);
        buffer11.read(held, meta.slot); hdr.chunks16.f11 = hdr.chunks16.f11 & held; buffer11.write(meta.slot, hdr.chunks16.f11);
        buffer12.read(held, meta.slot); hdr.chunks16.f12 = hdr.chunks16.f12 & held; buffer12.write(meta.slot, hdr.chunks16.f12);
        buffer13.read(held, meta.slot); hdr.chunks16.f13 = hdr.chunks16.f13 & held; buffer13.write(meta.slot, hdr.chunks16.f13);
        buffer14.read(held, meta.slot); hdr.chunks16.f14 = hdr.chunks16.f14 & held; buffer14.write(meta.slot, hdr.chunks16.f14);
        buffer15.read(held, meta.slot); hdr.chunks16.f15 = hdr.chunks16.f15 & held; buffer15.write(meta.slot, hdr.chunks16.f15);
    }
    action or16() {
        buffer0.read(held, meta.slot); hdr.chunks16.f0 = hdr.chunks16.f0 | held; buffer0.write(meta.slot, hdr.chunks16.f0);
        buffer1.read(held, meta.slot); hdr.chunks16.f1 = hdr.chunks16.f1 | held; buffer1.write(meta.slot, hdr.chunks16.f1);
        buffer2.read(held, meta.slot); hdr.chunks16.f2 = hdr.chunks16.f2 | held; buffer2.write(meta.slot, hdr.chunks16.f2);
        buffer3.read(held, meta.slot); hdr.chunks16.f3 = hdr.chunks16.f3 | held; buffer3.write(meta.slot, hdr.chunks16.f3);
        buffer4.read(held, meta.slot); hdr.chunks16.f4 = hdr.chunks16.f4 | held; buffer4.write(meta.slot, hdr.chunks16.f4);
        buffer5.read(held, meta.slot); hdr.chunks16.f5 = hdr.chunks16.f5 | held; buffer5.write(meta.slot, hdr.chunks16.f5);
        buffer6.read(held, meta.slot); hdr.chunks16.f6 = hdr.chunks16.f6 | held; buffer6.write(meta.slot, hdr.chunks16.f6);
        buffer7.read(held, meta.slot); hdr.chunks16.f7 = hdr.chunks16.f7 | held; buffer7.write(meta.slot, hdr.chunks16.f7);
        buffer8.read(held, meta.slot); hdr.chunks16.f8 = hdr.chunks16.f8 | held; buffer8.write(meta.slot, hdr.chunks16.f8);
        buffer9.read(held, meta.slot); hdr.chunks16.f9 = hdr.chunks16.f9 | held; buffer9.write(meta.slot, hdr.chunks16.f9);
        buffer10.read(held, meta.slot); hdr.chunks16.f10 = hdr.chunks16.f10 | held; buffer10.write(meta.slot, hdr.chunks16.f10);
        buffer11.read(held, meta.slot); hdr.chunks16.f11 = hdr.chunks16.f11 | held; buffer11.write(meta.slot, hdr.chunks16.f11);
        buffer12.read(held, meta.slot); hdr.chunks16.f12 = hdr.chunks16.f12 | held; buffer12.write(meta.slot, hdr.chunks16.f12);
        buffer13.read(held, meta.slot); hdr.chunks16.f13 = hdr.chunks16.f13 | held; buffer13.write(meta.slot, hdr.chunks16.f13);
        buffer14.read(held, meta.slot); hdr.chunks16.f14 = hdr.chunks16.f14 | held; buffer14.write(meta.slot, hdr.chunks16.f14);
        buffer15.read(held, meta.slot); hdr.chunks16.f15 = hdr.chunks16.f15 | held; buffer15.write(meta.slot, hdr.chunks16.f15);
    }
    action xor16() {
        buffer0.read(held, meta.slot); hdr.chunks16.f0 = hdr.chunks16.f0 ^ held; buffer0.write(meta.slot, hdr.chunks16.f0);
        buffer1.read(held, meta.slot); hdr.chunks16.f1 = hdr.chunks16.f1 ^ held; buffer1.write(meta.slot, hdr.chunks16.f1);
        buffer2.read(held, meta.slot); hdr.chunks16.f2 = hdr.chunks16.f2 ^ held; buffer2.write(meta.slot, hdr.chunks16.f2);
        buffer3.read(held, meta.slot); hdr.chunks16.f3 = hdr.chunks16.f3 ^ held; buffer3.write(meta.slot, hdr.chunks16.f3);
        buffer4.read(held, meta.slot); hdr.chunks16.f4 = hdr.chunks16.f4 ^ held; buffer4.write(meta.slot, hdr.chunks16.f4);
        buffer5.read(held, meta.slot); hdr.chunks16.f5 = hdr.chunks16.f5 ^ held; buffer5.write(meta.slot, hdr.chunks16.f5);
        buffer6.read(held, meta.slot); hdr.chunks16.f6 = hdr.chunks16.f6 ^ held; buffer6.write(meta.slot, hdr.chunks16.f6);
        buffer7.read(held, meta.slot); hdr.chunks16.f7 = hdr.chunks16.f7 ^ held; buffer7.write(meta.slot, hdr.chunks16.f7);
        buffer8.read(held, meta.slot); hdr.chunks16.f8 = hdr.chunks16.f8 ^ held; buffer8.write(meta.slot, hdr.chunks16.f8);
        buffer9.read(held, meta.slot); hdr.chunks16.f9 = hdr.chunks16.f9 ^ held; buffer9.write(meta.slot, hdr.chunks16.f9);
        buffer10.read(held, meta.slot); hdr.chunks16.f10 = hdr.chunks16.f10 ^ held; buffer10.write(meta.slot, hdr.chunks16.f10);
        buffer11.read(held, meta.slot); hdr.chunks16.f11 = hdr.chunks16.f11 ^ held; buffer11.write(meta.slot, hdr.chunks16.f11);
        buffer12.read(held, meta.slot); hdr.chunks16.f12 = hdr.chunks16.f12 ^ held; buffer12.write(meta.slot, hdr.chunks16.f12);
        buffer13.read(held, meta.slot); hdr.chunks16.f13 = hdr.chunks16.f13 ^ held; buffer13.write(meta.slot, hdr.chunks16.f13);
        buffer14.read(held, meta.slot); hdr.chunks16.f14 = hdr.chunks16.f14 ^ held; buffer14.write(meta.slot, hdr.chunks16.f14);
        buffer15.read(held, meta.slot); hdr.chunks16.f15 = hdr.chunks16.f15 ^ held; buffer15.write(meta.slot, hdr.chunks16.f15);
    }
    action store8() {
        buffer0.write(meta.slot, hdr.chunks8.f0);
        buffer1.write(meta.slot, hdr.chunks8.f1);
        buffer2.write(meta.slot, hdr.chunks8.f2);
        buffer3.write(meta.slot, hdr.chunks8.f3);
        buffer4.write(meta.slot, hdr.chunks8.f4);
        buffer5.write(meta.slot, hdr.chunks8.f5);
        buffer6.write(meta.slot, hdr.chunks8.f6);
        buffer7.write(meta.slot, hdr.chunks8.f7);
    }
    action load8() {
        hdr.chunks8.setValid();
        buffer0.read(hdr.chunks8.f0, meta.slot);
        buffer1.read(hdr.chunks8.f1, meta.slot);
        buffer2.read(hdr.chunks8.f2, meta.slot);
        buffer3.read(hdr.chunks8.f3, meta.slot);
        buffer4.read(hdr.chunks8.f4, meta.slot);
        buffer5.read(hdr.chunks8.f5, meta.slot);
        buffer6.read(hdr.chunks8.f6, meta.slot);
        buffer7.read(hdr.chunks8.f7, meta.slot);
    }
    action sum8() {
        buffer0.read(held, meta.slot); hdr.chunks8.f0 = hdr.chunks8.f0 + held; buffer0.write(meta.slot, hdr.chunks8.f0);
        buffer1.read(held, meta.slot); hdr.chunks8.f1 = hdr.chunks8.f1 + held; buffer1.write(meta.slot, hdr.chunks8.f1);
        buffer2.read(held, meta.slot); hdr.chunks8.f2 = hdr.chunks8.f2 + held; buffer2.write(meta.slot, hdr.chunks8.f2);
        buffer3.read(held, meta.slot); hdr.chunks8.f3 = hdr.chunks8.f3 + held; buffer3.write(meta.slot, hdr.chunks8.f3);
        buffer4.read(held, meta.slot); hdr.chunks8.f4 = hdr.chunks8.f4 + held; buffer4.write(meta.slot, hdr.chunks8.f4);
        buffer5.read(held, meta.slot); hdr.chunks8.f5 = hdr.chunks8.f5 + held; buffer5.write(meta.slot, hdr.chunks8.f5);
        buffer6.read(held, meta.slot); hdr.chunks8.f6 = hdr.chunks8.f6 + held; buffer6.write(meta.slot, hdr.chunks8.f6);
        buffer7.read(held, meta.slot); hdr.chunks8.f7 = hdr.chunks8.f7 + held; buffer7.write(meta.slot, hdr.chunks8.f7);
    }
    action min8() {
        buffer0.read(held, meta.slot);
        low = (hdr.chunks8.f0 | top) - (held & ~top);
        wins = ((hdr.chunks8.f0 & ~held) | (~(hdr.chunks8.f0 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f0 = (held & wins) | (hdr.chunks8.f0 & ~wins); buffer0.write(meta.slot, hdr.chunks8.f0);
        buffer1.read(held, meta.slot);
        low = (hdr.chunks8.f1 | top) - (held & ~top);
        wins = ((hdr.chunks8.f1 & ~held) | (~(hdr.chunks8.f1 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f1 = (held & wins) | (hdr.chunks8.f1 & ~wins); buffer1.write(meta.slot, hdr.chunks8.f1);
        buffer2.read(held, meta.slot);
        low = (hdr.chunks8.f2 | top) - (held & ~top);
        wins = ((hdr.chunks8.f2 & ~held) | (~(hdr.chunks8.f2 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f2 = (held & wins) | (hdr.chunks8.f2 & ~wins); buffer2.write(meta.slot, hdr.chunks8.f2);
        buffer3.read(held, meta.slot);
        low = (hdr.chunks8.f3 | top) - (held & ~top);
        wins = ((hdr.chunks8.f3 & ~held) | (~(hdr.chunks8.f3 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f3 = (held & wins) | (hdr.chunks8.f3 & ~wins); buffer3.write(meta.slot, hdr.chunks8.f3);
        buffer4.read(held, meta.slot);
        low = (hdr.chunks8.f4 | top) - (held & ~top);
        wins = ((hdr.chunks8.f4 & ~held) | (~(hdr.chunks8.f4 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f4 = (held & wins) | (hdr.chunks8.f4 & ~wins); buffer4.write(meta.slot, hdr.chunks8.f4);
        buffer5.read(held, meta.slot);
        low = (hdr.chunks8.f5 | top) - (held & ~top);
        wins = ((hdr.chunks8.f5 & ~held) | (~(hdr.chunks8.f5 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f5 = (held & wins) | (hdr.chunks8.f5 & ~wins); buffer5.write(meta.slot, hdr.chunks8.f5);
        buffer6.read(held, meta.slot);
        low = (hdr.chunks8.f6 | top) - (held & ~top);
        wins = ((hdr.chunks8.f6 & ~held) | (~(hdr.chunks8.f6 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f6 = (held & wins) | (hdr.chunks8.f6 & ~wins); buffer6.write(meta.slot, hdr.chunks8.f6);
        buffer7.read(held, meta.slot);
        low = (hdr.chunks8.f7 | top) - (held & ~top);
        wins = ((hdr.chunks8.f7 & ~held) | (~(hdr.chunks8.f7 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f7 = (held & wins) | (hdr.chunks8.f7 & ~wins); buffer7.write(meta.slot, hdr.chunks8.f7);
    }
    action max8() {
        buffer0.read(held, meta.slot);
        low = (hdr.chunks8.f0 | top) - (held & ~top);
        wins = ((hdr.chunks8.f0 & ~held) | (~(hdr.chunks8.f0 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f0 = (hdr.chunks8.f0 & wins) | (held & ~wins); buffer0.write(meta.slot, hdr.chunks8.f0);
        buffer1.read(held, meta.slot);
        low = (hdr.chunks8.f1 | top) - (held & ~top);
        wins = ((hdr.chunks8.f1 & ~held) | (~(hdr.chunks8.f1 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f1 = (hdr.chunks8.f1 & wins) | (held & ~wins); buffer1.write(meta.slot, hdr.chunks8.f1);
        buffer2.read(held, meta.slot);
        low = (hdr.chunks8.f2 | top) - (held & ~top);
        wins = ((hdr.chunks8.f2 & ~held) | (~(hdr.chunks8.f2 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f2 = (hdr.chunks8.f2 & wins) | (held & ~wins); buffer2.write(meta.slot, hdr.chunks8.f2);
        buffer3.read(held, meta.slot);
        low = (hdr.chunks8.f3 | top) - (held & ~top);
        wins = ((hdr.chunks8.f3 & ~held) | (~(hdr.chunks8.f3 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f3 = (hdr.chunks8.f3 & wins) | (held & ~wins); buffer3.write(meta.slot, hdr.chunks8.f3);
        buffer4.read(held, meta.slot);
        low = (hdr.chunks8.f4 | top) - (held & ~top);
        wins = ((hdr.chunks8.f4 & ~held) | (~(hdr.chunks8.f4 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f4 = (hdr.chunks8.f4 & wins) | (held & ~wins); buffer4.write(meta.slot, hdr.chunks8.f4);
        buffer5.read(held, meta.slot);
        low = (hdr.chunks8.f5 | top) - (held & ~top);
        wins = ((hdr.chunks8.f5 & ~held) | (~(hdr.chunks8.f5 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f5 = (hdr.chunks8.f5 & wins) | (held & ~wins); buffer5.write(meta.slot, hdr.chunks8.f5);
        buffer6.read(held, meta.slot);
        low = (hdr.chunks8.f6 | top) - (held & ~top);
        wins = ((hdr.chunks8.f6 & ~held) | (~(hdr.chunks8.f6 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f6 = (hdr.chunks8.f6 & wins) | (held & ~wins); buffer6.write(meta.slot, hdr.chunks8.f6);
        buffer7.read(held, meta.slot);
        low = (hdr.chunks8.f7 | top) - (held & ~top);
        wins = ((hdr.chunks8.f7 & ~held) | (~(hdr.chunks8.f7 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks8.f7 = (hdr.chunks8.f7 & wins) | (held & ~wins); buffer7.write(meta.slot, hdr.chunks8.f7);
    }
    action and8() {
        buffer0.read(held, meta.slot); hdr.chunks8.f0 = hdr.chunks8.f0 & held; buffer0.write(meta.slot, hdr.chunks8.f0);
        buffer1.read(held, meta.slot); hdr.chunks8.f1 = hdr.chunks8.f1 & held; buffer1.write(meta.slot, hdr.chunks8.f1);
        buffer2.read(held, meta.slot); hdr.chunks8.f2 = hdr.chunks8.f2 & held; buffer2.write(meta.slot, hdr.chunks8.f2);
        buffer3.read(held, meta.slot); hdr.chunks8.f3 = hdr.chunks8.f3 & held; buffer3.write(meta.slot, hdr.chunks8.f3);
        buffer4.read(held, meta.slot); hdr.chunks8.f4 = hdr.chunks8.f4 & held; buffer4.write(meta.slot, hdr.chunks8.f4);
        buffer5.read(held, meta.slot); hdr.chunks8.f5 = hdr.chunks8.f5 & held; buffer5.write(meta.slot, hdr.chunks8.f5);
        buffer6.read(held, meta.slot); hdr.chunks8.f6 = hdr.chunks8.f6 & held; buffer6.write(meta.slot, hdr.chunks8.f6);
        buffer7.read(held, meta.slot); hdr.chunks8.f7 = hdr.chunks8.f7 & held; buffer7.write(meta.slot, hdr.chunks8.f7);
    }
    action or8() {
        buffer0.read(held, meta.slot); hdr.chunks8.f0 = hdr.chunks8.f0 | held; buffer0.write(meta.slot, hdr.chunks8.f0);
        buffer1.read(held, meta.slot); hdr.chunks8.f1 = hdr.chunks8.f1 | held; buffer1.write(meta.slot, hdr.chunks8.f1);
        buffer2.read(held, meta.slot); hdr.chunks8.f2 = hdr.chunks8.f2 | held; buffer2.write(meta.slot, hdr.chunks8.f2);
        buffer3.read(held, meta.slot); hdr.chunks8.f3 = hdr.chunks8.f3 | held; buffer3.write(meta.slot, hdr.chunks8.f3);
        buffer4.read(held, meta.slot); hdr.chunks8.f4 = hdr.chunks8.f4 | held; buffer4.write(meta.slot, hdr.chunks8.f4);
        buffer5.read(held, meta.slot); hdr.chunks8.f5 = hdr.chunks8.f5 | held; buffer5.write(meta.slot, hdr.chunks8.f5);
        buffer6.read(held, meta.slot); hdr.chunks8.f6 = hdr.chunks8.f6 | held; buffer6.write(meta.slot, hdr.chunks8.f6);
        buffer7.read(held, meta.slot); hdr.chunks8.f7 = hdr.chunks8.f7 | held; buffer7.write(meta.slot, hdr.chunks8.f7);
    }
    action xor8() {
        buffer0.read(held, meta.slot); hdr.chunks8.f0 = hdr.chunks8.f0 ^ held; buffer0.write(meta.slot, hdr.chunks8.f0);
        buffer1.read(held, meta.slot); hdr.chunks8.f1 = hdr.chunks8.f1 ^ held; buffer1.write(meta.slot, hdr.chunks8.f1);
        buffer2.read(held, meta.slot); hdr.chunks8.f2 = hdr.chunks8.f2 ^ held; buffer2.write(meta.slot, hdr.chunks8.f2);
        buffer3.read(held, meta.slot); hdr.chunks8.f3 = hdr.chunks8.f3 ^ held; buffer3.write(meta.slot, hdr.chunks8.f3);
        buffer4.read(held, meta.slot); hdr.chunks8.f4 = hdr.chunks8.f4 ^ held; buffer4.write(meta.slot, hdr.chunks8.f4);
        buffer5.read(held, meta.slot); hdr.chunks8.f5 = hdr.chunks8.f5 ^ held; buffer5.write(meta.slot, hdr.chunks8.f5);
        buffer6.read(held, meta.slot); hdr.chunks8.f6 = hdr.chunks8.f6 ^ held; buffer6.write(meta.slot, hdr.chunks8.f6);
        buffer7.read(held, meta.slot); hdr.chunks8.f7 = hdr.chunks8.f7 ^ held; buffer7.write(meta.slot, hdr.chunks8.f7);
    }
    action store4() {
        buffer8.write(meta.slot, hdr.chunks4.f0);
        buffer9.write(meta.slot, hdr.chunks4.f1);
        buffer10.write(meta.slot, hdr.chunks4.f2);
        buffer11.write(meta.slot, hdr.chunks4.f3);
    }
    action load4() {
        hdr.chunks4.setValid();
        buffer8.read(hdr.chunks4.f0, meta.slot);
        buffer9.read(hdr.chunks4.f1, meta.slot);
        buffer10.read(hdr.chunks4.f2, meta.slot);
        buffer11.read(hdr.chunks4.f3, meta.slot);
    }
    action sum4() {
        buffer8.read(held, meta.slot); hdr.chunks4.f0 = hdr.chunks4.f0 + held; buffer8.write(meta.slot, hdr.chunks4.f0);
        buffer9.read(held, meta.slot); hdr.chunks4.f1 = hdr.chunks4.f1 + held; buffer9.write(meta.slot, hdr.chunks4.f1);
        buffer10.read(held, meta.slot); hdr.chunks4.f2 = hdr.chunks4.f2 + held; buffer10.write(meta.slot, hdr.chunks4.f2);
        buffer11.read(held, meta.slot); hdr.chunks4.f3 = hdr.chunks4.f3 + held; buffer11.write(meta.slot, hdr.chunks4.f3);
    }
    action min4() {
        buffer8.read(held, meta.slot);
        low = (hdr.chunks4.f0 | top) - (held & ~top);
        wins = ((hdr.chunks4.f0 & ~held) | (~(hdr.chunks4.f0 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks4.f0 = (held & wins) | (hdr.chunks4.f0 & ~wins); buffer8.write(meta.slot, hdr.chunks4.f0);
        buffer9.read(held, meta.slot);
        low = (hdr.chunks4.f1 | top) - (held & ~top);
        wins = ((hdr.chunks4.f1 & ~held) | (~(hdr.chunks4.f1 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks4.f1 = (held & wins) | (hdr.chunks4.f1 & ~wins); buffer9.write(meta.slot, hdr.chunks4.f1);
        buffer10.read(held, meta.slot);
        low = (hdr.chunks4.f2 | top) - (held & ~top);
        wins = ((hdr.chunks4.f2 & ~held) | (~(hdr.chunks4.f2 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks4.f2 = (held & wins) | (hdr.chunks4.f2 & ~wins); buffer10.write(meta.slot, hdr.chunks4.f2);
        buffer11.read(held, meta.slot);
        low = (hdr.chunks4.f3 | top) - (held & ~top);
        wins = ((hdr.chunks4.f3 & ~held) | (~(hdr.chunks4.f3 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks4.f3 = (held & wins) | (hdr.chunks4.f3 & ~wins); buffer11.write(meta.slot, hdr.chunks4.f3);
    }
    action max4() {
        buffer8.read(held, meta.slot);
        low = (hdr.chunks4.f0 | top) - (held & ~top);
        wins = ((hdr.chunks4.f0 & ~held) | (~(hdr.chunks4.f0 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks4.f0 = (hdr.chunks4.f0 & wins) | (held & ~wins); buffer8.write(meta.slot, hdr.chunks4.f0);
        buffer9.read(held, meta.slot);
        low = (hdr.chunks4.f1 | top) - (held & ~top);
        wins = ((hdr.chunks4.f1 & ~held) | (~(hdr.chunks4.f1 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks4.f1 = (hdr.chunks4.f1 & wins) | (held & ~wins); buffer9.write(meta.slot, hdr.chunks4.f1);
        buffer10.read(held, meta.slot);
        low = (hdr.chunks4.f2 | top) - (held & ~top);
        wins = ((hdr.chunks4.f2 & ~held) | (~(hdr.chunks4.f2 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks4.f2 = (hdr.chunks4.f2 & wins) | (held & ~wins); buffer10.write(meta.slot, hdr.chunks4.f2);
        buffer11.read(held, meta.slot);
        low = (hdr.chunks4.f3 | top) - (held & ~top);
        wins = ((hdr.chunks4.f3 & ~held) | (~(hdr.chunks4.f3 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks4.f3 = (hdr.chunks4.f3 & wins) | (held & ~wins); buffer11.write(meta.slot, hdr.chunks4.f3);
    }
    action and4() {
        buffer8.read(held, meta.slot); hdr.chunks4.f0 = hdr.chunks4.f0 & held; buffer8.write(meta.slot, hdr.chunks4.f0);
        buffer9.read(held, meta.slot); hdr.chunks4.f1 = hdr.chunks4.f1 & held; buffer9.write(meta.slot, hdr.chunks4.f1);
        buffer10.read(held, meta.slot); hdr.chunks4.f2 = hdr.chunks4.f2 & held; buffer10.write(meta.slot, hdr.chunks4.f2);
        buffer11.read(held, meta.slot); hdr.chunks4.f3 = hdr.chunks4.f3 & held; buffer11.write(meta.slot, hdr.chunks4.f3);
    }
    action or4() {
        buffer8.read(held, meta.slot); hdr.chunks4.f0 = hdr.chunks4.f0 | held; buffer8.write(meta.slot, hdr.chunks4.f0);
        buffer9.read(held, meta.slot); hdr.chunks4.f1 = hdr.chunks4.f1 | held; buffer9.write(meta.slot, hdr.chunks4.f1);
        buffer10.read(held, meta.slot); hdr.chunks4.f2 = hdr.chunks4.f2 | held; buffer10.write(meta.slot, hdr.chunks4.f2);
        buffer11.read(held, meta.slot); hdr.chunks4.f3 = hdr.chunks4.f3 | held; buffer11.write(meta.slot, hdr.chunks4.f3);
    }
    action xor4() {
        buffer8.read(held, meta.slot); hdr.chunks4.f0 = hdr.chunks4.f0 ^ held; buffer8.write(meta.slot, hdr.chunks4.f0);
        buffer9.read(held, meta.slot); hdr.chunks4.f1 = hdr.chunks4.f1 ^ held; buffer9.write(meta.slot, hdr.chunks4.f1);
        buffer10.read(held, meta.slot); hdr.chunks4.f2 = hdr.chunks4.f2 ^ held; buffer10.write(meta.slot, hdr.chunks4.f2);
        buffer11.read(held, meta.slot); hdr.chunks4.f3 = hdr.chunks4.f3 ^ held; buffer11.write(meta.slot, hdr.chunks4.f3);
    }
    action store2() {
        buffer12.write(meta.slot, hdr.chunks2.f0);
        buffer13.write(meta.slot, hdr.chunks2.f1);
    }
    action load2() {
        hdr.chunks2.setValid();
        buffer12.read(hdr.chunks2.f0, meta.slot);
        buffer13.read(hdr.chunks2.f1, meta.slot);
    }
    action sum2() {
        buffer12.read(held, meta.slot); hdr.chunks2.f0 = hdr.chunks2.f0 + held; buffer12.write(meta.slot, hdr.chunks2.f0);
        buffer13.read(held, meta.slot); hdr.chunks2.f1 = hdr.chunks2.f1 + held; buffer13.write(meta.slot, hdr.chunks2.f1);
    }
    action min2() {
        buffer12.read(held, meta.slot);
        low = (hdr.chunks2.f0 | top) - (held & ~top);
        wins = ((hdr.chunks2.f0 & ~held) | (~(hdr.chunks2.f0 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks2.f0 = (held & wins) | (hdr.chunks2.f0 & ~wins); buffer12.write(meta.slot, hdr.chunks2.f0);
        buffer13.read(held, meta.slot);
        low = (hdr.chunks2.f1 | top) - (held & ~top);
        wins = ((hdr.chunks2.f1 & ~held) | (~(hdr.chunks2.f1 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks2.f1 = (held & wins) | (hdr.chunks2.f1 & ~wins); buffer13.write(meta.slot, hdr.chunks2.f1);
    }
    action max2() {
        buffer12.read(held, meta.slot);
        low = (hdr.chunks2.f0 | top) - (held & ~top);
        wins = ((hdr.chunks2.f0 & ~held) | (~(hdr.chunks2.f0 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks2.f0 = (hdr.chunks2.f0 & wins) | (held & ~wins); buffer12.write(meta.slot, hdr.chunks2.f0);
        buffer13.read(held, meta.slot);
        low = (hdr.chunks2.f1 | top) - (held & ~top);
        wins = ((hdr.chunks2.f1 & ~held) | (~(hdr.chunks2.f1 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks2.f1 = (hdr.chunks2.f1 & wins) | (held & ~wins); buffer13.write(meta.slot, hdr.chunks2.f1);
    }
    action and2() {
        buffer12.read(held, meta.slot); hdr.chunks2.f0 = hdr.chunks2.f0 & held; buffer12.write(meta.slot, hdr.chunks2.f0);
        buffer13.read(held, meta.slot); hdr.chunks2.f1 = hdr.chunks2.f1 & held; buffer13.write(meta.slot, hdr.chunks2.f1);
    }
    action or2() {
        buffer12.read(held, meta.slot); hdr.chunks2.f0 = hdr.chunks2.f0 | held; buffer12.write(meta.slot, hdr.chunks2.f0);
        buffer13.read(held, meta.slot); hdr.chunks2.f1 = hdr.chunks2.f1 | held; buffer13.write(meta.slot, hdr.chunks2.f1);
    }
    action xor2() {
        buffer12.read(held, meta.slot); hdr.chunks2.f0 = hdr.chunks2.f0 ^ held; buffer12.write(meta.slot, hdr.chunks2.f0);
        buffer13.read(held, meta.slot); hdr.chunks2.f1 = hdr.chunks2.f1 ^ held; buffer13.write(meta.slot, hdr.chunks2.f1);
    }
    action store1() {
        buffer14.write(meta.slot, hdr.chunks1.f0);
    }
    action load1() {
        hdr.chunks1.setValid();
        buffer14.read(hdr.chunks1.f0, meta.slot);
    }
    action sum1() {
        buffer14.read(held, meta.slot); hdr.chunks1.f0 = hdr.chunks1.f0 + held; buffer14.write(meta.slot, hdr.chunks1.f0);
    }
    action min1() {
        buffer14.read(held, meta.slot);
        low = (hdr.chunks1.f0 | top) - (held & ~top);
        wins = ((hdr.chunks1.f0 & ~held) | (~(hdr.chunks1.f0 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks1.f0 = (held & wins) | (hdr.chunks1.f0 & ~wins); buffer14.write(meta.slot, hdr.chunks1.f0);
    }
    action max1() {
        buffer14.read(held, meta.slot);
        low = (hdr.chunks1.f0 | top) - (held & ~top);
        wins = ((hdr.chunks1.f0 & ~held) | (~(hdr.chunks1.f0 ^ held) & low)) & top;
        wins = (wins - (wins >> shift)) | wins;
        hdr.chunks1.f0 = (hdr.chunks1.f0 & wins) | (held & ~wins); buffer14.write(meta.slot, hdr.chunks1.f0);
    }
    action and1() {
        buffer14.read(held, meta.slot); hdr.chunks1.f0 = hdr.chunks1.f0 & held; buffer14.write(meta.slot, hdr.chunks1.f0);
    }
    action or1() {
        buffer14.read(held, meta.slot); hdr.chunks1.f0 = hdr.chunks1.f0 | held; buffer14.write(meta.slot, hdr.chunks1.f0);
    }
    action xor1() {
        buffer14.read(held, meta.slot); hdr.chunks1.f0 = hdr.chunks1.f0 ^ held; buffer14.write(meta.slot, hdr.chunks1.f0);
    }

    apply {
        if (meta.combine == combine_t.LOAD) {
            // What came in with the asking packet makes room for what the slot holds. But a partial without payload keeps
            // the room of its packet: the result may need it.
            if (!HAS_CHUNKS(meta.record, 0) || HAS_STATE(meta.record, state_t.DONE)) {
                drop_payload.apply(hdr);
            }
            if (WITH(16)) { load16(); }
            if (WITH(8)) { load8(); }
            if (WITH(4)) { load4(); }
            if (WITH(2)) { load2(); }
            if (WITH(1)) { load1(); }
        } else if (meta.combine != combine_t.NOTHING) {
            if (OP_COMPARES(hdr.netsum.op)) {
                shift = (8w8 << (bit<4>)hdr.netsum.lane) - 1;
                if (hdr.netsum.lane == lane_t.L8)       { top = TOP_BITS_8; }
                else if (hdr.netsum.lane == lane_t.L16) { top = TOP_BITS_16; }
                else if (hdr.netsum.lane == lane_t.L32) { top = TOP_BITS_32; }
                else                                    { top = TOP_BITS_64; }
            }
            if (WITH(16)) {
                if (meta.combine == combine_t.SUM) { sum16(); }
                else if (meta.combine == combine_t.STORE) { store16(); }
                else if (meta.combine == combine_t.MIN) { min16(); }
                else if (meta.combine == combine_t.MAX) { max16(); }
                else if (meta.combine == combine_t.AND) { and16(); }
                else if (meta.combine == combine_t.OR) { or16(); }
                else if (meta.combine == combine_t.XOR) { xor16(); }
            } else {
                if (WITH(8)) {
                    if (meta.combine == combine_t.SUM) { sum8(); }
                    else if (meta.combine == combine_t.STORE) { store8(); }
                    else if (meta.combine == combine_t.MIN) { min8(); }
                    else if (meta.combine == combine_t.MAX) { max8(); }
                    else if (meta.combine == combine_t.AND) { and8(); }
                    else if (meta.combine == combine_t.OR) { or8(); }
                    else if (meta.combine == combine_t.XOR) { xor8(); }
                }
                if (WITH(4)) {
                    if (meta.combine == combine_t.SUM) { sum4(); }
                    else if (meta.combine == combine_t.STORE) { store4(); }
                    else if (meta.combine == combine_t.MIN) { min4(); }
                    else if (meta.combine == combine_t.MAX) { max4(); }
                    else if (meta.combine == combine_t.AND) { and4(); }
                    else if (meta.combine == combine_t.OR) { or4(); }
                    else if (meta.combine == combine_t.XOR) { xor4(); }
                }
                if (WITH(2)) {
                    if (meta.combine == combine_t.SUM) { sum2(); }
                    else if (meta.combine == combine_t.STORE) { store2(); }
                    else if (meta.combine == combine_t.MIN) { min2(); }
                    else if (meta.combine == combine_t.MAX) { max2(); }
                    else if (meta.combine == combine_t.AND) { and2(); }
                    else if (meta.combine == combine_t.OR) { or2(); }
                    else if (meta.combine == combine_t.XOR) { xor2(); }
                }
                if (WITH(1)) {
                    if (meta.combine == combine_t.SUM) { sum1(); }
                    else if (meta.combine == combine_t.STORE) { store1(); }
                    else if (meta.combine == combine_t.MIN) { min1(); }
                    else if (meta.combine == combine_t.MAX) { max1(); }
                    else if (meta.combine == combine_t.AND) { and1(); }
                    else if (meta.combine == combine_t.OR) { or1(); }
                    else if (meta.combine == combine_t.XOR) { xor1(); }
                }
            }
        }
    }
}
