// SPDX-License-Identifier: MIT
// The P4Runtime ids of everything that a controller names, so that they stay when code moves or a control is renamed. An id
// is never given to anything else. p4c puts the kind (table, action, counter, register) into the high byte.

#ifndef IDS_P4
#define IDS_P4

#define MY_STATION_TABLE       1
#define FORWARD_TABLE          2
#define SOURCE_GUARD_TABLE     3
#define JOB_TABLE              4
#define MEMBER_TABLE           5
#define UPLINK_TABLE           6
#define REWRITE_TABLE          7
#define REGION_TABLE           8
#define SHARD_TABLE            9
#define MEMORY_SOURCE_TABLE    10
#define DEVICE_TABLE           11
#define DELIVER_TABLE          12

#define ACTION_SET_MY_MAC          1
#define ACTION_REJECT_TRANSIT      2
#define ACTION_FORWARD_TO          3
#define ACTION_FLOOD               4
#define ACTION_CHECK_INGRESS_PORT  5
#define ACTION_SET_JOB             6
#define ACTION_UNKNOWN_JOB         7
#define ACTION_SET_MEMBER          8
#define ACTION_SET_PARENT          9
#define ACTION_NOT_MEMBER          10
#define ACTION_UP                  11
#define ACTION_UPLINK_DROP         12
#define ACTION_TO_MEMBER           13
#define ACTION_TO_SWITCH           14
#define ACTION_REWRITE_DROP        15
#define ACTION_SET_VIRTUAL_MAC     16
#define ACTION_SET_REGION          17
#define ACTION_NO_REGION           18
#define ACTION_SET_SHARD           19
#define ACTION_SHARD_LOST          20
#define ACTION_NO_SHARD            21
#define ACTION_FROM_DEVICE         22
#define ACTION_FROM_SWITCH         23
#define ACTION_FROM_OTHER          24
#define ACTION_SET_DEVICE          25
#define ACTION_DEVICE_DROP         26
#define ACTION_DELIVER_DROP            27
#define ACTION_DELIVER_RESULT          28
#define ACTION_DELIVER_RESULT_TO_ALL   29
#define ACTION_DELIVER_EARLY           30
#define ACTION_DELIVER_RESULT_OF_SCAN  31
#define ACTION_DELIVER_PARTIAL         32
#define ACTION_DELIVER_ANSWER          33
#define ACTION_DELIVER_ANSWER_TO_ALL   34
#define ACTION_DELIVER_ANSWER_OF_SCAN  35
#define ACTION_DELIVER_REFUSAL_TO_ALL  36
#define ACTION_DELIVER_CONTROLLER      37
#define ACTION_DELIVER_REFUSE          38
#define ACTION_SET_KEYED_MEMBER        39
#define ACTION_TO_KEYED_MEMBER         40
#define ACTION_SET_MULTICAST_JOB       41
#define ACTION_TO_IP_MULTICAST         42

#define PORTS_COUNTER          1
#define DROPPED_COUNTER        2
#define OUTCOMES_COUNTER       3
#define MEMBER_COUNTER         1    // direct ones
#define REGION_COUNTER         2

#define RECORD_REGISTER        1
#define JOB_PROGRESS_REGISTER  2
#define BUSY_REGISTER          3
#define CLAIM_REGISTER         4
#define ADDRESS_REGISTER       5
#define BUFFER_REGISTER(i)     1##i    // 10 to 19, 110 to 115

#endif
