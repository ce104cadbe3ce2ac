//! Two builds of every handler: for the plain target, and for AVX2 + FMA where this machine has them.
//!
//! Both give the same bits. The choice is made at run time, so that a build without `-C target-cpu` still runs at full
//! speed.

/// A function that runs in the widest build that this machine can run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tiers<F> {
    pub widest: F,
    /// The build for any machine, for comparison.
    #[cfg(test)]
    pub plain: F,
}

/// The [`Tiers`] of a function: `tiers!(body: fn(a: &mut Registers, b: u32) -> u32)`.
macro_rules! tiers {
    ($body:path: fn($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {{
        #[multiversion::multiversion(
            targets("x86_64+avx2+fma+f16c+bmi1+bmi2+lzcnt+popcnt"),
            dispatcher = "indirect"
        )]
        fn widest($($arg: $ty),*) $(-> $out)? {
            $body($($arg),*)
        }
        #[cfg(test)]
        fn plain($($arg: $ty),*) $(-> $out)? {
            $body($($arg),*)
        }
        $crate::sim::tier::Tiers {
            widest: widest as fn($($ty),*) $(-> $out)?,
            #[cfg(test)]
            plain,
        }
    }};
}

pub(crate) use tiers;
