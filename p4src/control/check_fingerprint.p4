// SPDX-License-Identifier: MIT
// Whether a contribution is of the call that its block is of: the first one says which. ABORT and MISMATCH are exempt, so that a
// member that disagrees can say so.

control CheckFingerprint(in headers_t hdr, inout metadata_t meta) {
    // Only members that gave up have contributed so far, but a result needs a generation.
    action set_provisional_fingerprint() {
        meta.record = (meta.record & ~FINGERPRINT_BITS) | FINGERPRINT(hdr.netsum);
    }
    action set_fingerprint() {
        meta.record = (meta.record & ~FINGERPRINT_BITS) | FINGERPRINT(hdr.netsum) | AS_FINGERPRINTED(1w1)
            | AS_NO_AGING(hdr.netsum.no_aging);
    }

    apply {
        if (IS_QUERY(hdr.netsum) && !BRINGS_COPY(hdr.netsum)) {
            meta.outcome = outcome_t.QUERIED_PARENT;
        } else if (STATUS_GIVES_UP(hdr.netsum.status)) {
            if (HAS_FINGERPRINTED(meta.record, 0)) {
                set_provisional_fingerprint();
            }
        } else if (!OP_IS_KNOWN(hdr.netsum.op)) {
            meta.outcome = outcome_t.UNSUPPORTED;
        } else if (HAS_FINGERPRINTED(meta.record, 0)) {
            set_fingerprint();
        } else if ((meta.record & FINGERPRINT_BITS) != FINGERPRINT(hdr.netsum)) {
            meta.outcome = outcome_t.FINGERPRINT_MISMATCH;
        }
    }
}
