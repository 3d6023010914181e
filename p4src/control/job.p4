// SPDX-License-Identifier: MIT
// The job record: what the controller installed for this job id.

control Job(in headers_t hdr, inout metadata_t meta) {
    @id(ACTION_SET_JOB)
    action set_job(bit<32> epoch, bit<256> all_sources, bit<16> slot_base, bit<16> slot_mask, bit<32> first_block_id,
                    bit<32> block_exp, bit<16> quorum, bit<16> window, role_t role, bit<8> stripe_mask, bit<8> priority) {
        meta.epoch = epoch;
        meta.all_sources = all_sources;
        meta.first_block = first_block_id;
        meta.num_slots = (bit<32>)slot_mask + 1;
        meta.stripe_mask = stripe_mask;
        meta.role = role;
        meta.priority = priority;
        meta.slot = (bit<32>)slot_base + (hdr.netsum.block_id & (bit<32>)slot_mask);
        meta.block_exp = block_exp;
        meta.quorum = quorum;
        meta.window = window;
    }
    // Some of its members have joined an IP multicast group.
    @id(ACTION_SET_MULTICAST_JOB)
    action set_multicast_job(bit<32> epoch, bit<256> all_sources, bit<16> slot_base, bit<16> slot_mask, bit<32> first_block_id,
                    bit<32> block_exp, bit<16> quorum, bit<16> window, role_t role, bit<8> stripe_mask, bit<8> priority) {
        meta.multicast = 1;
        set_job(epoch, all_sources, slot_base, slot_mask, first_block_id, block_exp, quorum, window, role, stripe_mask, priority);
    }
    @id(ACTION_UNKNOWN_JOB)
    action unknown_job() {
        meta.outcome = outcome_t.UNKNOWN_JOB;
    }
    @id(JOB_TABLE)
    @entry_restriction("job_id != 0")
    table job {
        key = { hdr.netsum.job_id: exact @name("job_id"); }
        actions = { set_job; set_multicast_job; unknown_job; }
        const default_action = unknown_job();
        size = 256;
    }
    apply {
        if (meta.outcome == outcome_t.PENDING) {
            job.apply();
        }
    }
}
