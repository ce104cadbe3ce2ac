//! Which lanes of a warp an entry of the race tables stands for, in six bits.

/// One lane, or several with the bytes that more than one of them touched.
///
/// Below 32 a lane; 32 and the bytes that at least two lanes touched; 48 for all bytes of the entry, which every living
/// lane of the warp wrote with one value. The other codes stand for two neighbouring lanes with half of the word each: 16-bit
/// elements lie so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Who(u32);

const SEVERAL: u32 = 32;
const EVERY: u32 = 48;
const BYTES: u32 = 0xF;
const LOW: u32 = 0b0011;
const HIGH: u32 = 0b1100;
/// The codes of pairs: 16 of them. One is taken from bytes that two lanes never share without those between.
const LAST_PAIR: u32 = SEVERAL | 0b1001;
const PAIRS_BEFORE: u32 = 15;

impl Who {
    #[inline(always)]
    pub fn lane(lane: u32) -> Who {
        Who(lane)
    }

    /// Every living lane, with one value.
    pub fn every() -> Who {
        Who(EVERY)
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

    /// Lanes 2k and 2k + 1, with the lower and the upper half.
    fn pair(k: u32) -> Who {
        Who(if k < PAIRS_BEFORE { EVERY + 1 + k } else { LAST_PAIR })
    }

    /// The number of a pair.
    fn of_pair(self) -> Option<u32> {
        match self.0 {
            LAST_PAIR => Some(PAIRS_BEFORE),
            code => code.checked_sub(EVERY + 1),
        }
    }

    /// The half that a lane has in its pair, if these bytes lie in it.
    fn half(lane: u32, bytes: u32) -> Option<u32> {
        let half = if lane.is_multiple_of(2) { LOW } else { HIGH };
        (bytes & !half == 0).then_some(half)
    }

    /// Those of `bytes` that more than one lane touched.
    fn shared(self, bytes: u32) -> u32 {
        match self.0 {
            EVERY => bytes,
            SEVERAL..EVERY if self.0 != LAST_PAIR => self.0 & BYTES,
            _ => 0,
        }
    }

    /// With more bytes that two lanes touched.
    fn several(shared: u32) -> Who {
        Who(if SEVERAL | shared == LAST_PAIR { SEVERAL } else { SEVERAL | shared })
    }

    /// The pair that this one, which touched `bytes`, and a lane make.
    fn pair_with(self, bytes: u32, now: u32, now_bytes: u32) -> Option<Who> {
        let k = now / 2;
        let is_mine = match (self.of_pair(), self.only()) {
            (Some(pair), _) => pair == k,
            (None, Some(lane)) => lane ^ 1 == now && Who::half(lane, bytes).is_some(),
            (None, None) => false,
        };
        (is_mine && Who::half(now, now_bytes).is_some()).then(|| Who::pair(k))
    }

    /// Together with `now`, which touched `now_bytes`, where this one touched `bytes`. What two instructions or two
    /// rounds of a loop leave open counts as touched by one lane.
    #[inline(always)]
    pub fn joined(self, bytes: u32, now: Who, now_bytes: u32) -> Who {
        if self == now {
            return self;
        }
        self.joined_with_another(bytes, now, now_bytes)
    }

    fn joined_with_another(self, bytes: u32, now: Who, now_bytes: u32) -> Who {
        if let Some(pair) = now.only().and_then(|lane| self.pair_with(bytes, lane, now_bytes)) {
            return pair;
        }
        let both = match (self.only(), now.only()) {
            (Some(_), Some(_)) => bytes & now_bytes,
            // Of a pair, what another lane touches as well.
            (None, Some(lane)) if self.has_other_than(Some(lane), now_bytes, true) => match self.of_pair() {
                Some(k) if lane / 2 == k => now_bytes & if lane.is_multiple_of(2) { HIGH } else { LOW },
                Some(_) => bytes & now_bytes,
                None => 0,
            },
            _ => 0,
        };
        Who::several(self.shared(bytes) | now.shared(now_bytes) | both)
    }

    /// Whether the join of another instruction's lane would say all that is known of both.
    #[inline(always)]
    pub fn joins_exactly(self, bytes: u32, now: Who, now_bytes: u32) -> bool {
        match (self.only(), now.only()) {
            (Some(_), Some(_)) => true,
            (None, Some(lane)) if self.of_pair().is_some() => self.pair_with(bytes, lane, now_bytes).is_some(),
            _ => bytes & now_bytes & !self.shared(bytes) == 0,
        }
    }

    /// Whether a lane other than this one touched one of the bytes; of a write by every lane a read sees what the lane
    /// itself wrote.
    #[inline(always)]
    pub fn has_other_than(self, lane: Option<u32>, bytes: u32, is_write: bool) -> bool {
        if let Some(only) = self.only() {
            return lane != Some(only);
        }
        match (self.of_pair(), lane) {
            (Some(k), Some(lane)) if lane / 2 == k => bytes & if lane.is_multiple_of(2) { HIGH } else { LOW } != 0,
            (Some(_), lane) => lane.is_some(),
            (None, _) => self.shared(bytes) & bytes != 0 && (is_write || self.0 != EVERY),
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
        let bytes = zero.joined(0b0001, one, 0b0010);
        assert!(!bytes.has_other_than(Some(0), 0b0001, true), "so it did with this byte");
        let low = zero.joined(0b0011, one, 0b0011).joined(0b0011, Who::lane(2), 0b1100);
        assert!(low.has_other_than(Some(2), 0b0001, true) && !low.has_other_than(Some(2), 0b1000, true));
        assert_eq!(zero.joined(0b0011, zero, 0b1100), zero);
    }

    #[test]
    fn a_second_round_of_a_loop_makes_no_lane_another() {
        let halves = Who::lane(0).joined(0b0011, Who::lane(1), 0b1100);
        assert_eq!(halves.joined(0xF, Who::lane(0), 0b0011), halves);
        let bytes = Who::lane(0).joined(0b0001, Who::lane(1), 0b0010);
        assert_eq!(bytes.joined(0b0011, Who::lane(0), 0b0001), bytes);
        assert!(!bytes.joins_exactly(0b0011, Who::lane(0), 0b0001));
    }

    #[test]
    fn of_a_pair_each_lane_has_its_half() {
        for k in 0..16 {
            let (even, odd) = (Who::lane(2 * k), Who::lane(2 * k + 1));
            let pair = even.joined(LOW, odd, HIGH);
            assert_eq!(odd.joined(HIGH, even, LOW), pair);
            assert_eq!(pair.only(), None);
            for (lane, own, others) in [(2 * k, LOW, HIGH), (2 * k + 1, HIGH, LOW)] {
                assert!(!pair.has_other_than(Some(lane), own, true) && pair.has_other_than(Some(lane), others, false));
                assert!(
                    pair.joins_exactly(0xF, Who::lane(lane), own) && !pair.joins_exactly(0xF, Who::lane(lane), others)
                );
                assert_eq!(pair.joined(0xF, Who::lane(lane), own), pair);
                let mixed = pair.joined(0xF, Who::lane(lane), 0xF);
                assert!(mixed.has_other_than(Some(lane), others, true) && !mixed.has_other_than(Some(lane), own, true));
            }
            let stranger = (2 * k + 2) % 32;
            assert!(pair.has_other_than(Some(stranger), 1, false));
            assert!(pair.joined(0xF, Who::lane(stranger), 0b0100).has_other_than(None, 0b0100, true));
            assert_eq!(pair.joined(0xF, pair, 0xF), pair);
        }
    }

    #[test]
    fn what_every_lane_wrote_may_be_read_by_each() {
        let every = Who::every();
        assert!(!every.has_other_than(Some(3), 0xF, false) && every.has_other_than(Some(3), 0xF, true));
        assert_eq!(every.joined(0xF, Who::every(), 0xF), every);
    }
}
