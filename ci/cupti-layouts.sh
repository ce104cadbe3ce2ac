#!/bin/bash
# Prints where CUPTI's activity records hold their fields, as the headers of a CUPTI wheel have it:
#   bash ci/cupti-layouts.sh FOLDER-OF-cupti_activity.h FOLDER-OF-cuda.h > fixtures/cupti/VERSION.tsv
# A line a field: record, field, offset, size; `.` as the field is the record as a whole. A test holds the program against these.
set -euo pipefail
include=$1
cuda=$2
work=$(mktemp -d)
trap 'rm -r "$work"' EXIT
# The newest version of a record stands in this header; older ones were moved to another.
newest() { grep -o "^} CUpti_Activity$1[0-9]*;" "$include/cupti_activity.h" | head -1 | tr -d '}; '; }
{
    echo '#include <stdio.h>'
    echo '#include <stddef.h>'
    echo '#include <cuda.h>'
    echo '#include <cupti_activity.h>'
    echo 'int main(void) {'
    fields() {
        local record=$1 type=$2
        shift 2
        echo "printf(\"$record\\t.\\t0\\t%zu\\n\", sizeof($type));"
        for field in "$@"; do
            echo "printf(\"$record\\t$field\\t%zu\\t%zu\\n\", offsetof($type, $field), sizeof((($type *)0)->$field));"
        done
    }
    fields kernel "$(newest Kernel)" kind registersPerThread start end deviceId contextId streamId gridX gridY gridZ \
        blockX blockY blockZ staticSharedMemory dynamicSharedMemory correlationId name graphNodeId graphId
    fields memcpy "$(newest Memcpy)" kind copyKind bytes start end deviceId contextId streamId correlationId graphNodeId graphId
    fields memset "$(newest Memset)" kind bytes start end deviceId contextId streamId correlationId graphNodeId graphId
    fields memory CUpti_ActivityMemory4 kind memoryOperationType memoryKind correlationId address bytes timestamp deviceId
    fields api CUpti_ActivityAPI kind cbid start end processId threadId correlationId returnValue
    fields synchronization "$(newest Synchronization)" kind type start end correlationId streamId
    fields external CUpti_ActivityExternalCorrelation kind externalKind externalId correlationId
    fields graph "$(newest GraphTrace)" kind correlationId start end deviceId graphId contextId streamId
    for kind in MEMCPY MEMSET CONCURRENT_KERNEL KERNEL DRIVER RUNTIME SYNCHRONIZATION EXTERNAL_CORRELATION MEMORY2 GRAPH_TRACE; do
        echo "printf(\"kinds\\t$kind\\t%d\\t4\\n\", CUPTI_ACTIVITY_KIND_$kind);"
    done
    echo 'return 0; }'
} > "$work/layouts.c"
gcc -I"$include" -I"$cuda" -o "$work/layouts" "$work/layouts.c"
"$work/layouts"
