// The P4Runtime ids of everything that a controller names, so that they stay when code moves or a control is renamed. An id
// is never given to anything else. p4c puts the kind (table, action, counter, register) into the high byte.

#ifndef IDS_P4
#define IDS_P4

#define AGGREGATOR_TABLE  1
#define FORWARD_TABLE     2
#define SENDER_TABLE      3
#define JOB_TABLE         4
#define MEMBER_TABLE      5
#define UPLINK_TABLE      6
#define REWRITE_TABLE     7
#define REGION_TABLE      8
#define SHARD_TABLE       9
#define COMES_FROM_TABLE  10
#define DEVICE_TABLE      11

#define AGGREGATOR_HERE   1
#define ELSEWHERE         2
#define FORWARD_TO        3
#define FLOOD             4
#define COMES_THROUGH     5
#define JOB_HERE          6
#define UNKNOWN_JOB       7
#define MEMBER_HERE       8
#define PARENT_HERE       9
#define NOT_MEMBER        10
#define UP                11
#define UPLINK_DROP       12
#define TO_MEMBER         13
#define TO_SWITCH         14
#define REWRITE_DROP      15
#define VIRTUAL_HERE      16
#define REGION_HERE       17
#define NO_REGION         18
#define SHARD_HERE        19
#define SHARD_LOST        20
#define NO_SHARD          21
#define FROM_DEVICE       22
#define FROM_SWITCH       23
#define FROM_STRANGER     24
#define DEVICE_HERE       25
#define DEVICE_DROP       26

#define PORTS_COUNTER     1
#define DROPPED_COUNTER   2
#define OUTCOMES_COUNTER  3
#define MEMBER_COUNTER    1    // direct ones
#define REGION_COUNTER    2

#define RECORD_REGISTER   1
#define FRONTIER_REGISTER 2
#define BUSY_REGISTER     3
#define CLAIM_REGISTER    4
#define BUFFER_REGISTER(i) 1##i    // 10 to 19, 110 to 115

#endif
