//! The builds of every handler: for the plain target, for AVX2 + FMA where this machine has them, and for AVX-512 too
//! where that pays: in operations on whole rows of registers, which are two vectors then.
//!
//! All give the same bits. The choice is made at run time, so that a build without `-C target-cpu` still runs at full
//! speed; what it comes to is known once a process, so that a handler is called through its pointer and nothing else.

use std::sync::OnceLock;

/// What a build of a function may use of the processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tier {
    /// What the target names.
    Plain,
    /// AVX2 and what came with it.
    Avx2,
    /// AVX-512 F, BW, DQ and VL beside.
    Avx512,
}

impl Tier {
    /// The widest that this machine runs.
    pub fn here() -> Tier {
        static HERE: OnceLock<Tier> = OnceLock::new();
        *HERE.get_or_init(Tier::detect)
    }

    /// By the features that [`build`] names.
    #[cfg(target_arch = "x86_64")]
    fn detect() -> Tier {
        macro_rules! has {
            ($($feature:tt)+) => { $(is_x86_feature_detected!($feature))&&+ };
        }
        if !has!("avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "popcnt") {
            Tier::Plain
        } else if !has!("avx512f" "avx512bw" "avx512dq" "avx512vl") {
            Tier::Avx2
        } else {
            Tier::Avx512
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn detect() -> Tier {
        Tier::Plain
    }
}

/// A function in the widest build that this machine can run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tiers<F> {
    pub widest: F,
    /// The build without AVX-512, for comparison.
    #[cfg(test)]
    pub narrower: F,
    /// The build for any machine, for comparison.
    #[cfg(test)]
    pub plain: F,
}

/// The [`Tiers`] of a function: `tiers!(body: fn(a: &mut Registers, b: u32) -> u32)`; with `rows` in front, for AVX-512
/// too.
macro_rules! tiers {
    ($body:path: fn($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {{
        $crate::sim::tier::build!(plain: $body: fn($($arg: $ty),*) $(-> $out)?);
        $crate::sim::tier::build!(avx2: $body: fn($($arg: $ty),*) $(-> $out)?);
        $crate::sim::tier::tiers!(@of [plain, avx2, avx2], fn($($ty),*) $(-> $out)?)
    }};
    (rows $body:path: fn($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {{
        $crate::sim::tier::build!(plain: $body: fn($($arg: $ty),*) $(-> $out)?);
        $crate::sim::tier::build!(avx2: $body: fn($($arg: $ty),*) $(-> $out)?);
        $crate::sim::tier::build!(avx512: $body: fn($($arg: $ty),*) $(-> $out)?);
        $crate::sim::tier::tiers!(@of [plain, avx2, avx512], fn($($ty),*) $(-> $out)?)
    }};
    (@of $builds:tt, fn($($ty:ty),*) $(-> $out:ty)?) => {{
        use $crate::sim::tier::{Tier, Tiers};
        const BUILDS: [unsafe fn($($ty),*) $(-> $out)?; 3] = $builds;
        #[expect(unsafe_code, reason = "which build this machine runs is known here alone")]
        let most = |widest: Tier| {
            let build = BUILDS[Tier::here().min(widest) as usize];
            // SAFETY: nothing but the features that a build is for makes it unsafe, and this machine has them.
            unsafe { std::mem::transmute::<unsafe fn($($ty),*) $(-> $out)?, fn($($ty),*) $(-> $out)?>(build) }
        };
        Tiers {
            widest: most(Tier::Avx512),
            #[cfg(test)]
            narrower: most(Tier::Avx2),
            #[cfg(test)]
            plain: most(Tier::Plain),
        }
    }};
}

/// A function by the name of its build.
macro_rules! build {
    (plain: $body:path: fn($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {
        fn plain($($arg: $ty),*) $(-> $out)? {
            $body($($arg),*)
        }
    };
    (avx2: $body:path: fn($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {
        #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt"))]
        fn avx2($($arg: $ty),*) $(-> $out)? {
            $body($($arg),*)
        }
    };
    (avx512: $body:path: fn($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {
        #[cfg_attr(
            target_arch = "x86_64",
            target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512dq,avx512vl")
        )]
        fn avx512($($arg: $ty),*) $(-> $out)? {
            $body($($arg),*)
        }
    };
}

pub(crate) use {build, tiers};
