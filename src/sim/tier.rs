//! The builds of every handler: for the plain target, for AVX2 + FMA where this machine has them, and for AVX-512 too
//! where that pays: in what kernels do often to whole rows of registers, which are two vectors then.
//!
//! All give the same bits. The choice is made at run time, so that a build without `-C target-cpu` still runs at full
//! speed.

/// A function that runs in the widest build that this machine can run.
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

/// The [`Tiers`] of a function: `tiers!(body: fn(a: &mut Registers, b: u32) -> u32)`; with `often` in front, for AVX-512
/// too; with `seldom`, one build for any machine.
macro_rules! tiers {
    (seldom $body:path: fn($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {
        $crate::sim::tier::Tiers {
            widest: $body as fn($($ty),*) $(-> $out)?,
            #[cfg(test)]
            narrower: $body,
            #[cfg(test)]
            plain: $body,
        }
    };
    ($body:path: fn($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {{
        $crate::sim::tier::build!(
            widest in targets("x86_64+avx2+fma+f16c+bmi1+bmi2+lzcnt+popcnt"):
            $body: fn($($arg: $ty),*) $(-> $out)?
        );
        $crate::sim::tier::tiers!(@of widest, $body: fn($($arg: $ty),*) $(-> $out)?)
    }};
    (often $body:path: fn($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {{
        $crate::sim::tier::build!(
            widest in targets(
                "x86_64+avx512f+avx512bw+avx512dq+avx512vl+avx2+fma+f16c+bmi1+bmi2+lzcnt+popcnt",
                "x86_64+avx2+fma+f16c+bmi1+bmi2+lzcnt+popcnt"
            ):
            $body: fn($($arg: $ty),*) $(-> $out)?
        );
        #[cfg(test)]
        $crate::sim::tier::build!(
            narrower in targets("x86_64+avx2+fma+f16c+bmi1+bmi2+lzcnt+popcnt"):
            $body: fn($($arg: $ty),*) $(-> $out)?
        );
        $crate::sim::tier::tiers!(@of narrower, $body: fn($($arg: $ty),*) $(-> $out)?)
    }};
    (@of $narrower:ident, $body:path: fn($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {{
        #[cfg(test)]
        fn plain($($arg: $ty),*) $(-> $out)? {
            $body($($arg),*)
        }
        $crate::sim::tier::Tiers {
            widest: widest as fn($($ty),*) $(-> $out)?,
            #[cfg(test)]
            narrower: $narrower,
            #[cfg(test)]
            plain,
        }
    }};
}

/// A function with a build for each target, the first of which this machine has runs.
macro_rules! build {
    ($name:ident in targets($($target:literal),*): $body:path: fn($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {
        #[multiversion::multiversion(targets($($target),*), dispatcher = "indirect")]
        fn $name($($arg: $ty),*) $(-> $out)? {
            $body($($arg),*)
        }
    };
}

pub(crate) use {build, tiers};
