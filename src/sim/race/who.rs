//! Which lanes of a warp an entry of the race tables stands for, in six bits.

/// One lane, or several with the bytes that more than one of them touched.
///
/// Below 32 a lane; 32 and the bytes that at least two lanes touched; 48 and the bytes that every living lane of the
/// warp wrote with one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Who(u32);

const SEVERAL: u32 = 32;
const EVERY: u32 = 48;
const BYTES: u32 = 0xF;

impl Who {
    #[inline(always)]
    pub fn lane(lane: u32) -> Who {
        Who(lane)
    }

    /// Every living lane, with one value.
    pub fn every(bytes: u32) -> Who {
        Who(EVERY | bytes)
    }

    #[inline(always)]
    pub fn from_bits(bits: u64) -> Who {
        Who(bits as u32 & 0x3F)
    }

    #[inline(always)]
    pub fn bits(self) -> u64 {
        u64::from(self.0)
    }

    /// The lane, or `None` for several.
    #[inline(always)]
    pub fn only(self) -> Option<u32> {
        (self.0 < SEVERAL).then_some(self.0)
    }

    /// The bytes that more than one lane touched.
    fn shared(self) -> u32 {
        if self.0 < SEVERAL { 0 } else { self.0 & BYTES }
    }

    /// Together with `now`, which touched `now_bytes`, where this one touched `bytes`. What two instructions or two
    /// rounds of a loop leave open counts as touched by one lane.
    #[inline(always)]
    pub fn joined(self, bytes: u32, now: Who, now_bytes: u32) -> Who {
        if self == now && self.0 < SEVERAL {
            return self;
        }
        if self.0 >= EVERY && now.0 >= EVERY {
            return Who(self.0 | now.0);
        }
        let both = if self.0 < SEVERAL && now.0 < SEVERAL { bytes & now_bytes } else { 0 };
        Who(SEVERAL | self.shared() | now.shared() | both)
    }

    /// Whether the join of another instruction's lane would say all that is known of both.
    #[inline(always)]
    pub fn joins_exactly(self, bytes: u32, now: Who, now_bytes: u32) -> bool {
        self.0 < SEVERAL && now.0 < SEVERAL || bytes & now_bytes & !self.shared() == 0
    }

    /// Whether a lane other than this one touched one of the bytes; of a write by every lane a read sees what the lane
    /// itself wrote.
    #[inline(always)]
    pub fn has_other_than(self, lane: Option<u32>, bytes: u32, is_write: bool) -> bool {
        match self.only() {
            Some(only) => lane != Some(only),
            None => self.shared() & bytes != 0 && (is_write || self.0 < EVERY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_two_lanes_touched_are_remembered() {
        let (zero, one) = (Who::lane(0), Who::lane(1));
        let word = zero.joined(0xF, one, 0xF);
        assert!(word.has_other_than(Some(0), 1, false) && word.has_other_than(Some(1), 8, true));
        let halves = zero.joined(0b0011, one, 0b1100);
        assert!(!halves.has_other_than(Some(0), 0b0011, true), "it touched that half alone");
        let low = zero.joined(0b0011, one, 0b0011).joined(0b0011, Who::lane(2), 0b1100);
        assert!(low.has_other_than(Some(2), 0b0001, true) && !low.has_other_than(Some(2), 0b1000, true));
        assert_eq!(zero.joined(0b0011, zero, 0b1100), zero);
    }

    #[test]
    fn a_second_round_of_a_loop_makes_no_lane_another() {
        let halves = Who::lane(0).joined(0b0011, Who::lane(1), 0b1100);
        assert_eq!(halves.joined(0xF, Who::lane(0), 0b0011), halves);
        assert!(!halves.joins_exactly(0xF, Who::lane(0), 0b0011));
    }

    #[test]
    fn what_every_lane_wrote_may_be_read_by_each() {
        let every = Who::every(0xF);
        assert!(!every.has_other_than(Some(3), 0xF, false) && every.has_other_than(Some(3), 0xF, true));
        assert_eq!(every.joined(0xF, Who::every(0xF), 0xF), every);
    }
}
