//! An opcode taken apart: its name, its types, its other modifiers, each of which a decoder has to consume.

use crate::sim::error::{Error, Result};
use crate::sim::ptx::types::Type;

/// `cvt.rn.ftz.f16.f32` is name `cvt`, modifiers `rn ftz`, types `F16 F32`.
#[derive(Debug, Clone)]
pub(crate) struct Opcode<'a> {
    pub name: &'a str,
    pub types: Vec<Type>,
    pub line: u32,
    text: &'a str,
    modifiers: Vec<&'a str>,
}

impl<'a> Opcode<'a> {
    pub fn new(text: &'a str, line: u32) -> Self {
        let mut parts = text.split('.');
        let name = parts.next().unwrap_or("");
        let mut types = Vec::new();
        let mut modifiers = Vec::new();
        for part in parts {
            match Type::from_name(part) {
                Some(ty) => types.push(ty),
                None => modifiers.push(part),
            }
        }
        Opcode { name, types, line, text, modifiers }
    }

    /// Whether the modifier stands there; it counts as understood from now on.
    pub fn take(&mut self, modifier: &str) -> bool {
        match self.modifiers.iter().position(|found| *found == modifier) {
            Some(at) => {
                self.modifiers.remove(at);
                true
            }
            None => false,
        }
    }

    /// The first modifier that `choose` accepts, consumed.
    pub fn take_map<T>(&mut self, choose: impl Fn(&str) -> Option<T>) -> Option<T> {
        let (at, value) =
            self.modifiers.iter().enumerate().find_map(|(at, found)| choose(found).map(|value| (at, value)))?;
        self.modifiers.remove(at);
        Some(value)
    }

    /// Consumes every modifier that `known` accepts: hints without a meaning here.
    pub fn ignore(&mut self, known: impl Fn(&str) -> bool) {
        self.modifiers.retain(|modifier| !known(modifier));
    }

    /// Whether a modifier that was not consumed yet stands there.
    pub fn has(&self, modifier: &str) -> bool {
        self.modifiers.contains(&modifier)
    }

    /// All parts behind the name: types and modifiers as they stand, understood or not.
    pub fn parts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.text.split('.').skip(1)
    }

    /// Whether all of these stand there.
    pub fn all_of(&self, wanted: &[&str]) -> bool {
        wanted.iter().all(|wanted| self.parts().any(|part| part == *wanted))
    }

    /// The only type, or the first of several.
    pub fn ty(&self) -> Result<Type> {
        self.types.first().copied().ok_or_else(|| self.unsupported())
    }

    pub fn unsupported(&self) -> Error {
        Error::unsupported(self.line, self.text)
    }

    /// Fails if a modifier was not understood.
    pub fn finish(&self) -> Result<()> {
        if self.modifiers.is_empty() { Ok(()) } else { Err(self.unsupported()) }
    }
}
