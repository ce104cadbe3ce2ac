//! Multicast objects: one address for replicas of a buffer, as devices that are joined have them.

use crate::sim::error::{Error, Result};
use crate::sim::machine::memory::address::OFFSET_MASK;
use crate::sim::machine::memory::{Memory, Pointer};

impl Memory {
    /// Joins buffers of one size, the replicas that several devices would have, behind one address, which `multimem`
    /// instructions take and no other access may.
    ///
    /// # Errors
    /// When there is no replica, or one is not the whole of a live allocation of the size that the first one has.
    pub fn multicast(&mut self, replicas: &[Pointer]) -> Result<Pointer> {
        let size = |pointer: &Pointer| {
            let whole = pointer.address() & OFFSET_MASK == 0;
            let found = self.find(pointer.address()).filter(|(_, allocation)| whole && allocation.is_live());
            found.map(|(_, allocation)| allocation.bytes())
        };
        let sizes: Vec<Option<u64>> = replicas.iter().map(size).collect();
        match sizes.as_slice() {
            [Some(first), others @ ..] if others.iter().all(|other| *other == Some(*first)) => {}
            _ => {
                return Err(Error::Launch(format!(
                    "a multicast object of buffers of {sizes:?} bytes: it takes whole live allocations of one size"
                )));
            }
        }
        let object = self.alloc(0, None)?;
        self.multicasts.insert(object.address(), replicas.to_vec());
        Ok(object)
    }

    /// The replicas behind an object, by the address of its first byte.
    pub(crate) fn replicas(&self, object: u64) -> Option<&[Pointer]> {
        self.multicasts.get(&object).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_of_one_size() {
        let mut memory = Memory::new();
        let [a, b, c] = [64, 64, 32].map(|bytes| memory.alloc(bytes, None).unwrap());
        let object = memory.multicast(&[a, b]).unwrap();
        assert_eq!(memory.replicas(object.address()), Some(&[a, b][..]));
        assert!(memory.multicast(&[a, c]).unwrap_err().to_string().contains("of one size"));
        assert!(memory.multicast(&[a, b.offset(4)]).is_err() && memory.multicast(&[]).is_err());
        assert!(memory.replicas(a.address()).is_none());
    }
}
