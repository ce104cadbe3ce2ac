//! Two builds of every handler, for the plain target and for AVX2 + FMA, and the choice between them.
//!
//! Both give the same bits. The choice is made when a kernel is decoded, so that a build without `-C target-cpu` still
//! runs at full speed.

/// A function in the build for any machine and, where this machine can run it, in the wide one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tiers<F> {
    pub base: F,
    pub wide: Option<F>,
}

impl<F> Tiers<F> {
    /// The faster of those that this machine can run.
    pub fn pick(self) -> F {
        self.wide.unwrap_or(self.base)
    }
}

/// Whether this machine has what the wide build asks for.
#[cfg(target_arch = "x86_64")]
pub(crate) fn has_wide() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("fma")
        && std::arch::is_x86_feature_detected!("f16c")
        && std::arch::is_x86_feature_detected!("bmi1")
        && std::arch::is_x86_feature_detected!("bmi2")
        && std::arch::is_x86_feature_detected!("lzcnt")
        && std::arch::is_x86_feature_detected!("popcnt")
}

/// The [`Tiers`] of a function: `tiers!(body: fn(a: &mut Registers, b: u32) -> u32)`.
///
/// The wide build is a closure inside a function with the features: it has them too, and is safe to call, since nobody
/// holds it who has not called that function.
macro_rules! tiers {
    ($body:path: fn($($arg:ident: $ty:ty),*) $(-> $out:ty)?) => {{
        fn base($($arg: $ty),*) $(-> $out)? {
            $body($($arg),*)
        }
        #[cfg(target_arch = "x86_64")]
        #[expect(unsafe_code, reason = "a function with target features may be called on machines that have them")]
        fn wide() -> Option<fn($($ty),*) $(-> $out)?> {
            #[target_feature(enable = "avx2,fma,f16c,bmi1,bmi2,lzcnt,popcnt")]
            fn build() -> fn($($ty),*) $(-> $out)? {
                |$($arg: $ty),*| $body($($arg),*)
            }
            // SAFETY: `has_wide` has found every feature of the list above on this machine.
            $crate::sim::tier::has_wide().then(|| unsafe { build() })
        }
        #[cfg(not(target_arch = "x86_64"))]
        fn wide() -> Option<fn($($ty),*) $(-> $out)?> {
            None
        }
        $crate::sim::tier::Tiers { base: base as fn($($ty),*) $(-> $out)?, wide: wide() }
    }};
}

pub(crate) use tiers;
