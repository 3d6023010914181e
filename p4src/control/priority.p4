// SPDX-License-Identifier: MIT
// Jobs of a higher priority go first. Switches of this kind have one queue for all jobs, so those that are to wait are told:
// a result says backoff while a job of a higher priority is busy, and hosts then hold back. A job is busy when its blocks
// get complete: one that waits for a straggler holds no other up.

@id(BUSY_REGISTER)
register<bit<56>, bit<1>>(1) busy_register;    // the highest priority that is busy, and when a block of it was last complete

#define NOW standard_metadata.ingress_global_timestamp

control Priority(inout headers_t hdr, in metadata_t meta, in standard_metadata_t standard_metadata) {
    bit<56> busy;

    action load() {
        busy_register.read(busy, 0);
    }
    action busy_now() {
        busy = meta.priority ++ NOW;
    }
    action backoff() {
        hdr.netsum.backoff = 1;
    }
    apply {
        if (meta.priority != 0 && NOW != 0) {      // a scan's later passes know no time
            load();
            if (meta.priority < busy[55:48] && NOW - busy[47:0] < BACKOFF_US) {
                if (!REPLY_IS_ANSWER(meta.reply)) {
                    backoff();
                }
            } else if (OUTCOME_IS_CLOSING(meta.outcome)) {
                busy_now();
                busy_register.write(0, busy);
            }
        }
    }
}
