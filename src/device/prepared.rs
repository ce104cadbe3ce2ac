//! What a kernel launches, made ready once for each point: to plan it, to look its entries up and to hold it against their
//! signatures takes longer than to launch it. The layers of a model are all at the same few points; addresses alone part them.

use super::arena::Region;
use super::argument::{Arguments, Buffer};
use super::fault::Fault;
use crate::core::candidate::Kernel;
use crate::core::dtype::DType;
use crate::core::gpu::Gpu;
use crate::core::launch::Launch;
use crate::core::shape::Point;
use std::collections::HashMap;

/// Points that are kept of a kernel. A cache that grows by a position a token makes a new one each time.
const MOST_POINTS: usize = 256;

/// Ways to lay out the regions that are kept of a point.
const MOST_LAYOUTS: usize = 8;

/// A kernel with its launches at the points where it was launched; `H` is what a device makes of a launch.
pub struct Prepared<H> {
    kernel: Kernel,
    gpu: Gpu,
    /// Where a point is in `points`.
    numbers: HashMap<Point, usize>,
    points: Vec<AtPoint<H>>,
}

struct AtPoint<H> {
    workspace_bytes: usize,
    layouts: Vec<Layout<H>>,
}

/// The launches on regions of certain names, lengths and dtypes: all that a launch is held against.
struct Layout<H> {
    regions: Vec<(String, usize, DType)>,
    launches: Vec<Ready<H>>,
}

/// A launch that lacks addresses alone.
pub struct Ready<H> {
    /// What the device made of it.
    pub handle: H,
    /// Its arguments.
    pub arguments: Arguments,
}

impl<H> Prepared<H> {
    /// A kernel that was launched nowhere yet, for launches on this GPU.
    pub fn new(kernel: Kernel, gpu: Gpu) -> Self {
        Prepared { kernel, gpu, numbers: HashMap::new(), points: Vec::new() }
    }

    /// Scratch bytes that the kernel asks for at a point.
    pub fn workspace_bytes(&mut self, point: &[usize]) -> usize {
        let number = self.number(point);
        self.points[number].workspace_bytes
    }

    /// The launches at a point on such regions, without those that have no block; `prepare` is asked for each the first time, and
    /// where names, lengths or dtypes of the regions are others than before.
    ///
    /// # Errors
    /// Where the arguments do not fit the regions, and what `prepare` said.
    pub fn launches(
        &mut self,
        point: &[usize],
        regions: &[Region<'_>],
        prepare: impl FnMut(&Kernel, &Launch, &Arguments) -> Result<H, Fault>,
    ) -> Result<&mut [Ready<H>], Fault> {
        let number = self.number(point);
        let layouts = &mut self.points[number].layouts;
        let known = layouts.iter().position(|layout| layout.is_of(regions));
        let at = match known {
            Some(at) => at,
            None => {
                let made = self.gpu.during(|| Layout::of(&self.kernel, point, regions, prepare))?;
                if layouts.len() == MOST_LAYOUTS {
                    layouts.clear();
                }
                layouts.push(made);
                layouts.len() - 1
            }
        };
        Ok(&mut layouts[at].launches)
    }

    fn number(&mut self, point: &[usize]) -> usize {
        if let Some(&number) = self.numbers.get(point) {
            return number;
        }
        if self.points.len() == MOST_POINTS {
            self.numbers.clear();
            self.points.clear();
        }
        let number = self.points.len();
        self.numbers.insert(point.to_vec(), number);
        let workspace_bytes = self.gpu.during(|| self.kernel.workspace_bytes(point));
        self.points.push(AtPoint { workspace_bytes, layouts: Vec::new() });
        number
    }
}

impl<H> Layout<H> {
    fn of(
        kernel: &Kernel,
        point: &[usize],
        regions: &[Region<'_>],
        mut prepare: impl FnMut(&Kernel, &Launch, &Arguments) -> Result<H, Fault>,
    ) -> Result<Self, Fault> {
        let anywhere =
            regions.iter().map(|&Region { name, bytes, dtype, .. }| Buffer { name, address: 0, bytes, dtype });
        let buffers: Vec<Buffer<'_>> = anywhere.collect();
        let launches = kernel.plan(point).0.into_iter().filter(|launch| !launch.is_empty());
        let ready = launches.map(|launch| {
            let arguments = Arguments::of(&launch, &buffers)?;
            Ok(Ready { handle: prepare(kernel, &launch, &arguments)?, arguments })
        });
        let launches = ready.collect::<Result<_, Fault>>()?;
        let held = |region: &Region<'_>| (region.name.to_owned(), region.bytes, region.dtype);
        Ok(Layout { regions: regions.iter().map(held).collect(), launches })
    }

    fn is_of(&self, regions: &[Region<'_>]) -> bool {
        let held = self.regions.iter().map(|(name, bytes, dtype)| (name.as_str(), *bytes, *dtype));
        held.eq(regions.iter().map(|region| (region.name, region.bytes, region.dtype)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::candidate::{Body, Cuda, IntoCandidate};
    use crate::core::launch::Plan;
    use crate::core::tensor_map::TensorMap;
    use crate::device::arena::BufferId;
    use crate::device::argument::{MAP_BYTES, Tiled, arguments};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    crate::shape! { struct Matrix { rows: 1..=4096, cols: 8..=4096 } }

    /// What a launch is, and its arguments.
    type Launched = Vec<(Launch, Vec<Vec<u8>>)>;

    /// Two launches with every kind of argument, and one without a block; and how often they were planned.
    fn kernel() -> (Kernel, Arc<AtomicUsize>) {
        let plans = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&plans);
        let cuda = Cuda::source("", "first", move |s: &Matrix| {
            counted.fetch_add(1, Ordering::Relaxed);
            let map = TensorMap::of("x", [s.rows, s.cols]).tile([1, 8]);
            let second = Launch::blocks(s.cols, 64).without_pointers().pointer_at("workspace", s.rows).map(map.clone());
            let first = Launch::blocks(s.rows, 32).scalar(s.cols as i32).map(map);
            Plan(vec![first, Launch::blocks(0, 32), second.entry("second").scalar(0.5f32)])
        });
        let Body::Cuda(kernel) = cuda.workspace(|s| s.rows * 4).named("c").body else { panic!("a CUDA body") };
        (kernel, plans)
    }

    /// The input, output and scratch of a layer, which all but the scratch are its own.
    fn regions(point: &[usize], layer: usize) -> [Region<'static>; 3] {
        let bytes = point[0] * point[1] * 2;
        let region = |name, buffer, offset_bytes, bytes| Region {
            name,
            buffer: BufferId(buffer),
            offset_bytes,
            bytes,
            dtype: DType::BF16,
        };
        [
            region("x", layer, 0, bytes),
            region("y", layer + 1, 16 * layer, bytes),
            region("workspace", 99, 0, point[0] * 4),
        ]
    }

    fn address(region: &Region<'_>) -> u64 {
        ((region.buffer.0 as u64 + 1) << 20) + region.offset_bytes as u64
    }

    fn encode(map: &Tiled) -> Result<[u8; MAP_BYTES], Fault> {
        let mut encoded = [0; MAP_BYTES];
        encoded[..8].copy_from_slice(&map.address.to_le_bytes());
        encoded[8..16].copy_from_slice(&map.extents[0].to_le_bytes());
        Ok(encoded)
    }

    fn kept(prepared: &mut Prepared<Launch>, point: &[usize], regions: &[Region<'_>]) -> Result<Launched, Fault> {
        let launches = prepared.launches(point, regions, |_, launch, _| Ok(launch.clone()))?;
        let filled = launches.iter_mut().map(|ready| {
            ready.arguments.fill(|at| address(&regions[at]), encode)?;
            Ok((ready.handle.clone(), ready.arguments.each()))
        });
        filled.collect()
    }

    fn afresh(point: &[usize], regions: &[Region<'_>]) -> Launched {
        let placed = regions.iter().map(|region| {
            let Region { name, bytes, dtype, .. } = *region;
            Buffer { name, address: address(region), bytes, dtype }
        });
        let buffers: Vec<Buffer<'_>> = placed.collect();
        let launches = kernel().0.plan(point).0.into_iter().filter(|launch| !launch.is_empty());
        launches
            .map(|launch| {
                let arguments = arguments(&launch, &buffers, encode).unwrap();
                (launch, arguments)
            })
            .collect()
    }

    #[test]
    fn layers_at_a_point_share_its_plan_and_keep_their_addresses() {
        let (kernel, plans) = kernel();
        let mut prepared = Prepared::new(kernel, Gpu::SIMULATED);
        let points = [[4, 8], [16, 8], [4, 16], [1, 4096]];
        for _prompt in 0..3 {
            for point in &points {
                assert_eq!(prepared.workspace_bytes(point), point[0] * 4);
                for layer in 0..22 {
                    let regions = regions(point, layer);
                    assert_eq!(kept(&mut prepared, point, &regions).unwrap(), afresh(point, &regions));
                }
            }
        }
        assert_eq!(plans.load(Ordering::Relaxed), points.len());
    }

    #[test]
    fn regions_of_other_lengths_are_held_against_the_launches_again() {
        let (kernel, plans) = kernel();
        let (mut prepared, point) = (Prepared::new(kernel, Gpu::SIMULATED), [4, 8]);
        let right = regions(&point, 0);
        kept(&mut prepared, &point, &right).unwrap();
        let mut short = right;
        short[0].bytes -= 2;
        let mut said = |regions: &[Region<'_>]| match kept(&mut prepared, &point, regions) {
            Err(Fault::Signature(why)) => why,
            other => panic!("{other:?}"),
        };
        assert!(said(&short).contains("ends at byte 64, the buffer has 62"));
        let mut renamed = right;
        renamed[2].name = "z";
        assert!(said(&renamed).contains("the case has x, y, z"));
        let mut long = right;
        long[1].bytes += 2;
        assert_eq!(kept(&mut prepared, &point, &long).unwrap(), afresh(&point, &long));
        assert_eq!(kept(&mut prepared, &point, &right).unwrap(), afresh(&point, &right));
        assert_eq!(plans.load(Ordering::Relaxed), 4, "what does not fit is not kept, what fits is");
    }

    #[test]
    fn what_a_device_refuses_is_asked_for_again() {
        let (mut prepared, point) = (Prepared::<()>::new(kernel().0, Gpu::SIMULATED), [4, 8]);
        let refused = || Fault::Signature("no entry".into());
        let mut answers = [Ok(()), Err(refused()), Ok(()), Ok(())].into_iter();
        let mut launches = || {
            let launches = prepared.launches(&point, &regions(&point, 0), |_, _, _| answers.next().unwrap());
            launches.map(|launches| launches.len())
        };
        assert_eq!([launches(), launches(), launches()], [Err(refused()), Ok(2), Ok(2)]);
    }

    #[test]
    fn points_beyond_the_most_make_room() {
        let (kernel, plans) = kernel();
        let mut prepared = Prepared::new(kernel, Gpu::SIMULATED);
        for rows in (1..=MOST_POINTS + 1).chain([1, MOST_POINTS + 1]) {
            let point = [rows, 8];
            let regions = regions(&point, 3);
            assert_eq!(kept(&mut prepared, &point, &regions).unwrap(), afresh(&point, &regions));
        }
        assert_eq!((plans.load(Ordering::Relaxed), prepared.points.len()), (MOST_POINTS + 2, 2));
    }
}
