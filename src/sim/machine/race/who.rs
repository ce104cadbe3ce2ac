//! Which lanes of a warp an entry of the race tables stands for, in six bits.

/// One lane, or several, so that of every byte it is known which lane alone touched it, or that more than one did.
///
/// Below 32 a lane. Then several lanes that share all bytes of the entry; every living lane of the warp, which wrote all of
/// them with one value; pairs of neighbouring lanes with half of the word each, and fours with a byte each: elements of 16 and
/// of 8 bits lie so. What else lanes do with parts of a word has no code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Who(u32);

const SEVERAL: u32 = 32;
const EVERY: u32 = 33;
const PAIRS: u32 = 34;
const FOURS: u32 = PAIRS + 16;

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

    /// The lane that alone touched a byte of the entry, or `None` for several.
    pub fn owner(self, byte: u32) -> Option<u32> {
        match self.0 {
            lane @ 0..SEVERAL => Some(lane),
            SEVERAL..PAIRS => None,
            pair @ PAIRS..FOURS => Some(2 * (pair - PAIRS) + byte / 2),
            four => Some(4 * (four - FOURS) + byte),
        }
    }

    /// Who touched one byte.
    pub fn of_byte(self, byte: u32) -> Who {
        self.owner(byte).map_or(self, Who::lane)
    }

    /// Together with `now`, which touched `now_bytes`, where this one touched `bytes`; `None` if there is no code for it.
    #[inline(always)]
    pub fn joined(self, bytes: u32, now: Who, now_bytes: u32) -> Option<Who> {
        if self == now {
            Some(self)
        } else if bytes == now_bytes && !self.is_of_parts() && !now.is_of_parts() {
            Some(Who(SEVERAL))
        } else {
            self.joined_by_bytes(bytes, now, now_bytes)
        }
    }

    fn joined_by_bytes(self, bytes: u32, now: Who, now_bytes: u32) -> Option<Who> {
        let of_both = |byte: u32| {
            let mine = (bytes >> byte & 1 != 0).then(|| self.owner(byte));
            let theirs = (now_bytes >> byte & 1 != 0).then(|| now.owner(byte));
            let is_shared = mine.is_some() && theirs.is_some() && mine != theirs;
            if is_shared { Some(None) } else { mine.or(theirs) }
        };
        let owners: [Option<Option<u32>>; 4] = std::array::from_fn(|byte| of_both(byte as u32));
        let codes = match owners.into_iter().flatten().next()? {
            Some(lane) => [Who(PAIRS + lane / 2), Who(FOURS + lane / 4)],
            None => [Who(SEVERAL); 2],
        };
        let fits = |who: &Who| (0..4).zip(owners).all(|(byte, owner)| owner.is_none_or(|lane| lane == who.owner(byte)));
        codes.into_iter().find(fits)
    }

    /// Whether several lanes have parts of the word each.
    #[inline(always)]
    pub fn is_of_parts(self) -> bool {
        self.0 >= PAIRS
    }

    /// Whether it holds for one of those who touched the bytes: lanes, or `None` for several.
    pub fn any_owner(self, bytes: u32, holds: impl Fn(Option<u32>) -> bool) -> bool {
        (0..4).any(|byte| bytes >> byte & 1 != 0 && holds(self.owner(byte)))
    }

    /// Whether it is another lane than `now` that touched a byte, where `before` is the lane or `None` for several. Of what
    /// every lane wrote a lane reads its own.
    #[inline(always)]
    pub fn is_another(self, before: Option<u32>, now: Option<u32>, is_write: bool) -> bool {
        if before.is_some() { before != now } else { is_write || self.0 != EVERY }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOW: u32 = 0b0011;
    const HIGH: u32 = 0b1100;

    fn others(who: Who, lane: u32, bytes: u32, is_write: bool) -> bool {
        who.any_owner(bytes, |before| who.is_another(before, Some(lane), is_write))
    }

    #[test]
    fn what_several_lanes_touched_is_told_exactly_or_not_at_all() {
        let (zero, one) = (Who::lane(0), Who::lane(1));
        let word = zero.joined(0xF, one, 0xF).unwrap();
        assert!(others(word, 0, 1, false) && others(word, 1, 8, true));
        assert_eq!(word.joined(0xF, Who::lane(2), LOW), Some(word));
        assert_eq!(word.joined(LOW, Who::lane(2), HIGH), None, "one lane has the upper half");
        assert_eq!(zero.joined(HIGH, one, LOW), None, "each the other's half");
        assert_eq!(zero.joined(0xF, one, HIGH), None);
        assert_eq!(zero.joined(LOW, zero, HIGH), Some(zero));
        assert_eq!(zero.joined(LOW, one, LOW), Some(word));
    }

    #[test]
    fn of_a_pair_each_lane_has_its_half() {
        for k in 0..16 {
            let (even, odd) = (Who::lane(2 * k), Who::lane(2 * k + 1));
            let pair = even.joined(LOW, odd, HIGH).unwrap();
            assert_eq!((odd.joined(HIGH, even, LOW), pair.only()), (Some(pair), None));
            for (lane, own, other) in [(2 * k, LOW, HIGH), (2 * k + 1, HIGH, LOW)] {
                assert!(!others(pair, lane, own, true) && others(pair, lane, other, false));
                assert_eq!(pair.joined(0xF, Who::lane(lane), own), Some(pair));
                assert_eq!(pair.joined(0xF, Who::lane(lane), other), None);
            }
            let stranger = (2 * k + 2) % 32;
            assert!(others(pair, stranger, 1, false));
            assert_eq!(pair.joined(0xF, Who::lane(stranger), 0b0100), None);
            assert_eq!((pair.of_byte(1), pair.of_byte(2)), (even, odd));
        }
    }

    #[test]
    fn of_four_each_lane_has_its_byte() {
        for k in 0..8 {
            let lane = |byte| Who::lane(4 * k + byte);
            let two = lane(0).joined(1, lane(1), 2).unwrap();
            let four = two.joined(3, lane(2), 4).and_then(|three| three.joined(7, lane(3), 8)).unwrap();
            for byte in 0..4 {
                assert_eq!(four.of_byte(byte), lane(byte));
                assert!(!others(four, 4 * k + byte, 1 << byte, true));
                assert!(others(four, 4 * k + byte, 0xF & !(1 << byte), false));
                assert_eq!(four.joined(0xF, lane(byte), 1 << byte), Some(four));
            }
        }
        assert_eq!(Who::lane(0).joined(1, Who::lane(2), 2), None);
    }

    #[test]
    fn what_every_lane_wrote_may_be_read_by_each() {
        let every = Who::every();
        assert!(!others(every, 3, 0xF, false) && others(every, 3, 0xF, true));
        assert_eq!(every.joined(0xF, Who::every(), 0xF), Some(every));
        assert_eq!(every.joined(LOW, Who::lane(3), HIGH), None);
    }
}
