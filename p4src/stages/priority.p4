// Jobs of a higher priority go first. Switches of this kind have one queue for everybody, so those that are to wait are told:
// a result says give_way while a job of a higher priority is busy, and hosts then hold back. A job is busy when its blocks
// get complete: one that waits for a straggler holds nobody up.

@id(BUSY_REGISTER)
register<bit<56>, bit<1>>(1) busy_register;    // the highest priority that is busy, and when a block of it was last complete

#define NOW standard.ingress_global_timestamp

control Priority(inout headers_t hdr, in metadata_t meta, in standard_metadata_t standard) {
    bit<56> busy;

    action load() {
        busy_register.read(busy, 0);
    }
    action busy_now() {
        busy = JOB_PRIORITY(meta) ++ NOW;
    }
    action give_way() {
        hdr.netsum.give_way = 1;
    }
    apply {
        if (JOB_PRIORITY(meta) != 0 && NOW != 0) {      // a sweep's later passes know no time
            load();
            if (JOB_PRIORITY(meta) < busy[55:48] && NOW - busy[47:0] < GIVE_WAY_US) {
                if (!REPLY_IS_ANSWER(meta.reply)) {
                    give_way();
                }
            } else if (OUTCOME_IS_CLOSING(meta.outcome)) {
                busy_now();
                busy_register.write(0, busy);
            }
        }
    }
}
