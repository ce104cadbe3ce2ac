// wgmma of further widths than those of hopper.cuh: sixteens that are no power of two, and wide ones with A in registers.
#pragma once
#include "hopper.cuh"

namespace hopper {

HOPPER_WGMMA(80, HOPPER_FIRST_30 "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39", "%40", "%41", "%42", "%43", "%44",
               HOPPER_SUMS_32(0), HOPPER_SUMS_4(32), HOPPER_SUMS_4(36));
HOPPER_WGMMA(96, HOPPER_FIRST_30 HOPPER_TEN(3) "%40, %41, %42, %43, %44, %45, %46, %47", "%48", "%49", "%50", "%51", "%52",
               HOPPER_SUMS_32(0), HOPPER_SUMS_16(32));
HOPPER_WGMMA(112, HOPPER_FIRST_30 HOPPER_TEN(3) HOPPER_TEN(4) "%50, %51, %52, %53, %54, %55", "%56", "%57", "%58",
               "%59", "%60", HOPPER_SUMS_32(0), HOPPER_SUMS_16(32), HOPPER_SUMS_4(48), HOPPER_SUMS_4(52));
HOPPER_WGMMA(144, HOPPER_FIRST_60 HOPPER_TEN(6) "%70, %71", "%72", "%73", "%74", "%75", "%76", HOPPER_SUMS_32(0),
               HOPPER_SUMS_32(32), HOPPER_SUMS_4(64), HOPPER_SUMS_4(68));
HOPPER_WGMMA(160, HOPPER_FIRST_60 HOPPER_TEN(6) "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79", "%80", "%81", "%82",
               "%83", "%84", HOPPER_SUMS_32(0), HOPPER_SUMS_32(32), HOPPER_SUMS_16(64));
HOPPER_WGMMA(176, HOPPER_FIRST_60 HOPPER_TEN(6) HOPPER_TEN(7) "%80, %81, %82, %83, %84, %85, %86, %87", "%88", "%89",
               "%90", "%91", "%92", HOPPER_SUMS_32(0), HOPPER_SUMS_32(32), HOPPER_SUMS_16(64), HOPPER_SUMS_4(80),
               HOPPER_SUMS_4(84));
HOPPER_WGMMA(208, HOPPER_FIRST_90 HOPPER_TEN(9) "%100, %101, %102, %103", "%104", "%105", "%106", "%107", "%108",
               HOPPER_SUMS_32(0), HOPPER_SUMS_32(32), HOPPER_SUMS_32(64), HOPPER_SUMS_4(96), HOPPER_SUMS_4(100));

HOPPER_WGMMA_REGISTER_A(80, HOPPER_FIRST_30 "%30, %31, %32, %33, %34, %35, %36, %37, %38, %39", "%40, %41, %42, %43", "%44", "%45",
                        HOPPER_SUMS_32(0), HOPPER_SUMS_4(32), HOPPER_SUMS_4(36));
HOPPER_WGMMA_REGISTER_A(96, HOPPER_FIRST_30 HOPPER_TEN(3) "%40, %41, %42, %43, %44, %45, %46, %47", "%48, %49, %50, %51", "%52",
                        "%53", HOPPER_SUMS_32(0), HOPPER_SUMS_16(32));
HOPPER_WGMMA_REGISTER_A(192, HOPPER_FIRST_90 "%90, %91, %92, %93, %94, %95", "%96, %97, %98, %99", "%100", "%101",
                        HOPPER_SUMS_32(0), HOPPER_SUMS_32(32), HOPPER_SUMS_32(64));
HOPPER_WGMMA_REGISTER_A(256,
                        HOPPER_FIRST_90 HOPPER_TEN(9) HOPPER_TEN(10) HOPPER_TEN(11)
                        "%120, %121, %122, %123, %124, %125, %126, %127",
                        "%128, %129, %130, %131", "%132", "%133", HOPPER_SUMS_32(0), HOPPER_SUMS_32(32), HOPPER_SUMS_32(64),
                        HOPPER_SUMS_32(96));

}  // namespace hopper
