//! The scalar types and state spaces of PTX.

use std::fmt;

/// A scalar (or packed) type as it stands in an opcode or a declaration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    U8,
    U16,
    U32,
    U64,
    S8,
    S16,
    S32,
    S64,
    B8,
    B16,
    B32,
    B64,
    B128,
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    E4m3x2,
    E5m2x2,
    F32,
    F64,
    Pred,
}

impl Type {
    /// The type that a modifier (without its dot) names, if it names one.
    pub(crate) fn from_name(name: &str) -> Option<Type> {
        Some(match name {
            "u8" => Type::U8,
            "u16" => Type::U16,
            "u32" => Type::U32,
            "u64" => Type::U64,
            "s8" => Type::S8,
            "s16" => Type::S16,
            "s32" => Type::S32,
            "s64" => Type::S64,
            "b8" => Type::B8,
            "b16" => Type::B16,
            "b32" => Type::B32,
            "b64" => Type::B64,
            "b128" => Type::B128,
            "f16" => Type::F16,
            "f16x2" => Type::F16x2,
            "bf16" => Type::Bf16,
            "bf16x2" => Type::Bf16x2,
            "tf32" => Type::Tf32,
            "e4m3x2" => Type::E4m3x2,
            "e5m2x2" => Type::E5m2x2,
            "f32" => Type::F32,
            "f64" => Type::F64,
            "pred" => Type::Pred,
            _ => return None,
        })
    }

    /// Bytes in memory; a predicate has none.
    pub(crate) fn bytes(self) -> u32 {
        match self {
            Type::U8 | Type::S8 | Type::B8 => 1,
            Type::U16 | Type::S16 | Type::B16 | Type::F16 | Type::Bf16 | Type::E4m3x2 | Type::E5m2x2 => 2,
            Type::U32 | Type::S32 | Type::B32 | Type::F16x2 | Type::Bf16x2 | Type::Tf32 | Type::F32 => 4,
            Type::U64 | Type::S64 | Type::B64 | Type::F64 => 8,
            Type::B128 => 16,
            Type::Pred => 0,
        }
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Type::S8 | Type::S16 | Type::S32 | Type::S64)
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, ".{}", format!("{self:?}").to_lowercase())
    }
}

/// A state space. `Generic` is an address whose space shows at run time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    Generic,
    Global,
    Shared,
    Local,
    Param,
    Const,
}

impl Space {
    /// The space that a modifier or directive (without its dot) names.
    pub(crate) fn from_name(name: &str) -> Option<Space> {
        Some(match name {
            "global" => Space::Global,
            "shared" | "shared::cta" | "shared::cluster" => Space::Shared,
            "local" => Space::Local,
            "param" | "param::entry" | "param::func" => Space::Param,
            "const" => Space::Const,
            _ => return None,
        })
    }
}

/// The threads among which an atomic access or a fence holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Scope {
    Block,
    Cluster,
    /// Also the whole system: there is one device here.
    Device,
}

impl Scope {
    pub(crate) const COUNT: usize = 3;
    pub(crate) const ALL: [Scope; Self::COUNT] = [Scope::Block, Scope::Cluster, Scope::Device];

    /// The scope that a modifier names.
    pub(crate) fn from_name(name: &str) -> Option<Scope> {
        Some(match name {
            "cta" => Scope::Block,
            "cluster" => Scope::Cluster,
            "gpu" | "gl" | "sys" => Scope::Device,
            _ => return None,
        })
    }
}
