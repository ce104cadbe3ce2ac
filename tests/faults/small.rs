//! A device that is given small cases only: the fault table is wide, and every defect shows at a small shape.

use kernelgate::core::candidate::Body;
use kernelgate::device::fault::Fault;
use kernelgate::device::fingerprint::Fingerprint;
use kernelgate::device::{Capacity, Device, DeviceKind, Job, Problem};

/// Any device, with less capacity.
pub struct Small(pub Box<dyn Device>);

impl Device for Small {
    fn kind(&self) -> DeviceKind {
        self.0.kind()
    }

    fn fingerprint(&self) -> &Fingerprint {
        self.0.fingerprint()
    }

    fn runs(&self, body: &Body) -> bool {
        self.0.runs(body)
    }

    fn prepare(&self, job: &Job<'_>) -> Result<Box<dyn Problem + '_>, Fault> {
        self.0.prepare(job)
    }

    fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    fn search_capacity(&self) -> Capacity {
        let (own, small) = (self.0.search_capacity(), self.capacity());
        Capacity { elements: own.elements.min(small.elements), flops: own.flops.min(small.flops), ..own }
    }

    fn repeats(&self) -> usize {
        self.0.repeats()
    }

    /// Room for what a kernel meets past 16 bits, 65,537 rows of a few columns, and not much more.
    fn capacity(&self) -> Capacity {
        Capacity { elements: 6 * 65_537, flops: 1 << 23, ..self.0.capacity() }
    }
}
