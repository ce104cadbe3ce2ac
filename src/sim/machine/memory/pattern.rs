//! The shape of a warp's addresses: where they lie, whether they follow each other, whether they agree.

use crate::sim::machine::registers::LANES;

/// The addresses of the active lanes of one access; inactive lanes repeat the first active one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pattern {
    pub address: [u64; LANES],
    pub mask: u32,
    /// Bytes of a lane.
    pub bytes: u32,
    pub lowest: u64,
    pub highest: u64,
    /// All active lanes have one address.
    pub uniform: bool,
    /// The active lanes are the first ones and each starts where the one before ends.
    pub contiguous: bool,
    /// Some address is misaligned or beyond all memory: each lane has to be looked at.
    pub suspect: bool,
}

impl Pattern {
    /// `mask` must not be 0.
    #[inline(always)]
    pub fn new(address: [u64; LANES], mask: u32, bytes: u32) -> Self {
        if mask == u32::MAX
            && let Some(straight) = Pattern::straight(&address, bytes)
        {
            return straight;
        }
        Pattern::any(address, mask, bytes)
    }

    /// That of all lanes, if each starts where the one before ends: most accesses are so, and little is to be found out.
    #[inline(always)]
    fn straight(address: &[u64; LANES], bytes: u32) -> Option<Self> {
        let follows = match bytes {
            4 => follow::<4>(address),
            8 => follow::<8>(address),
            16 => follow::<16>(address),
            1 => follow::<1>(address),
            2 => follow::<2>(address),
            32 => follow::<32>(address),
            _ => false,
        };
        let row = Pattern::row(address[0], bytes);
        (follows && row.lowest as i64 <= row.highest as i64).then_some(row)
    }

    /// That of all lanes, one behind the other.
    #[inline(always)]
    pub fn row(lowest: u64, bytes: u32) -> Self {
        let step = u64::from(bytes);
        let mut address = [lowest; LANES];
        for (lane, address) in address.iter_mut().enumerate() {
            *address = address.wrapping_add(lane as u64 * step);
        }
        Pattern {
            address,
            mask: u32::MAX,
            bytes,
            lowest,
            highest: address[LANES - 1],
            uniform: false,
            contiguous: true,
            suspect: lowest & (step - 1) != 0 || (lowest as i64) < 0,
        }
    }

    #[inline(always)]
    fn any(mut address: [u64; LANES], mask: u32, bytes: u32) -> Self {
        let first = address[(mask.trailing_zeros() & 31) as usize];
        if mask != u32::MAX {
            for (lane, address) in address.iter_mut().enumerate() {
                let active = 0u64.wrapping_sub(u64::from((mask >> lane) & 1));
                *address = (*address & active) | (first & !active);
            }
        }
        let (mut differ, mut gaps, mut low_bits) = (0u64, 0u64, 0u64);
        let (mut lowest, mut highest) = (i64::MAX, i64::MIN);
        for (lane, &address) in address.iter().enumerate() {
            differ |= address ^ first;
            let active = 0u64.wrapping_sub(u64::from((mask >> lane) & 1));
            gaps |= (address.wrapping_sub(first).wrapping_sub(lane as u64 * u64::from(bytes))) & active;
            low_bits |= address;
            // Addresses stay below 2⁶³ wherever they are valid; a signed comparison is one instruction.
            lowest = lowest.min(address as i64);
            highest = highest.max(address as i64);
        }
        Pattern {
            address,
            mask,
            bytes,
            lowest: lowest as u64,
            highest: highest as u64,
            uniform: differ == 0,
            contiguous: gaps == 0 && mask & mask.wrapping_add(1) == 0,
            suspect: low_bits & u64::from(bytes - 1) != 0 || lowest < 0,
        }
    }

    /// The same access by fewer lanes.
    pub fn restrict(&self, mask: u32) -> Pattern {
        Pattern::new(self.address, mask, self.bytes)
    }

    /// Whether the lanes before this one that store to the same place store the same; `row` is what each stores there.
    pub fn stores_the_same(&self, lane: usize, row: &[u32; LANES]) -> bool {
        let full = u32::MAX >> (32 - 8 * self.bytes.min(4));
        if self.uniform && self.mask == u32::MAX {
            return row[..lane].iter().fold(0, |differ, other| differ | (other ^ row[lane])) & full == 0;
        }
        let before = self.lanes().take_while(|other| *other < lane);
        let mut same_place = before.filter(|other| self.address[*other] == self.address[lane]);
        same_place.all(|other| (row[other] ^ row[lane]) & full == 0)
    }

    pub fn lanes(&self) -> impl Iterator<Item = usize> + use<> {
        lanes(self.mask)
    }

    /// The lanes whose address is like that.
    pub fn lanes_at(&self, is_there: impl Fn(u64) -> bool) -> u32 {
        self.lanes().filter(|&lane| is_there(self.address[lane])).fold(0, |mask, lane| mask | 1 << lane)
    }

    /// 32-byte sectors that the access touches, and the fewest that its bytes would take.
    #[inline(always)]
    pub fn sectors_and_ideal(&self) -> (u64, u64) {
        let bytes = u64::from(self.bytes);
        let touched = u64::from(self.sectors());
        let asked_for = if self.uniform { bytes } else { u64::from(self.mask.count_ones()) * bytes };
        (touched, asked_for.div_ceil(32).min(touched))
    }

    /// 32-byte sectors that the access touches.
    #[inline(always)]
    pub fn sectors(&self) -> u32 {
        if self.contiguous || self.uniform {
            let span = self.highest.wrapping_sub(self.lowest) + u64::from(self.bytes);
            return ((self.lowest % 32 + span - 1) / 32 + 1) as u32;
        }
        let first = self.lowest & !31;
        if self.highest.wrapping_sub(first) < 64 * 32 {
            // Aligned accesses of up to 32 bytes stay in their sector.
            let sector = |address: &u64| address.wrapping_sub(first) / 32;
            let touched = self.address.iter().fold(0u64, |set, address| set | 1 << sector(address));
            return touched.count_ones();
        }
        let mut sectors = [0u64; LANES];
        let mut last = 0;
        let mut sorted = true;
        for (sector, &address) in sectors.iter_mut().zip(&self.address) {
            *sector = address / 32;
            sorted &= *sector >= last;
            last = *sector;
        }
        if !sorted {
            sectors.sort_unstable();
        }
        1 + sectors.windows(2).filter(|pair| pair[0] != pair[1]).count() as u32
    }
}

/// Whether each address lies so many bytes behind the one before.
#[inline(always)]
pub(crate) fn follow<const BYTES: u64>(address: &[u64; LANES]) -> bool {
    // Four gaps at a time: a compiler that sees one sum asks each lane.
    let mut gaps = [0; 4];
    for (four, group) in address.as_chunks::<4>().0.iter().enumerate() {
        for (at, gap) in gaps.iter_mut().enumerate() {
            *gap |= group[at].wrapping_sub(address[0]) ^ ((4 * four + at) as u64 * BYTES);
        }
    }
    gaps == [0; 4]
}

/// The set bits of a lane mask, upwards.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> + use<> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros();
        rest &= rest.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    fn strided(base: u64, stride: u64) -> [u64; LANES] {
        std::array::from_fn(|lane| base.wrapping_add(stride * lane as u64))
    }

    #[rstest]
    #[case(strided(256, 4), u32::MAX, 4, false, true, 4)]
    #[case(strided(256, 4), 0xFF, 4, false, true, 1)]
    #[case(strided(256, 4), 0xFE, 4, false, false, 1)]
    #[case(strided(256, 0), u32::MAX, 4, true, false, 1)]
    #[case(strided(256, 8), u32::MAX, 4, false, false, 8)]
    #[case(strided(256, 128), 0xF, 16, false, false, 4)]
    #[case(strided(260, 4), u32::MAX, 4, false, true, 5)]
    fn shapes(
        #[case] address: [u64; LANES],
        #[case] mask: u32,
        #[case] bytes: u32,
        #[case] uniform: bool,
        #[case] contiguous: bool,
        #[case] sectors: u32,
    ) {
        let pattern = Pattern::new(address, mask, bytes);
        assert_eq!((pattern.uniform, pattern.contiguous, pattern.sectors()), (uniform, contiguous, sectors));
    }

    #[test]
    fn inactive_lanes_count_for_nothing() {
        let mut address = strided(1 << 40, 4);
        address[3] = 1;
        let pattern = Pattern::new(address, !8, 4);
        assert!(!pattern.suspect);
        assert_eq!(pattern.lowest, 1 << 40);
        assert!(Pattern::new(address, 8, 4).suspect);
    }

    #[test]
    fn addresses_below_zero_are_suspect() {
        let pattern = Pattern::new(strided(0u64.wrapping_sub(16), 4), u32::MAX, 4);
        assert!(pattern.suspect);
        assert_eq!(pattern.sectors(), 5);
        let mut address = strided(256, 4);
        address[7] = 1 << 63;
        assert!(Pattern::new(address, u32::MAX, 4).suspect);
        assert_eq!(Pattern::new(address, u32::MAX, 4).sectors(), 5);
    }
}
