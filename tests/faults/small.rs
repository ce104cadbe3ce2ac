//! A device that is given small cases only: the fault table is wide, and every defect shows at a small shape.

use kernelgate::core::candidate::Body;
use kernelgate::device::fault::Fault;
use kernelgate::device::fingerprint::Fingerprint;
use kernelgate::device::{Capacity, Device, Job, Problem};

/// Elements of what a kernel meets past 16 bits: 65,537 rows of a few columns.
pub const PAST_16_BITS: usize = 6 * 65_537;

/// Any device, with less capacity.
pub struct Small {
    pub device: Box<dyn Device>,
    /// Elements of a correctness case.
    pub elements: usize,
}

impl Device for Small {
    fn fingerprint(&self) -> &Fingerprint {
        self.device.fingerprint()
    }

    fn runs(&self, body: &Body) -> bool {
        self.device.runs(body)
    }

    fn prepare(&self, job: &Job<'_>) -> Result<Box<dyn Problem + '_>, Fault> {
        self.device.prepare(job)
    }

    fn is_lost(&self) -> bool {
        self.device.is_lost()
    }

    fn search_capacity(&self) -> Capacity {
        let (own, small) = (self.device.search_capacity(), self.capacity());
        Capacity { elements: own.elements.min(small.elements), flops: own.flops.min(small.flops), ..own }
    }

    fn repeats(&self) -> usize {
        self.device.repeats()
    }

    fn capacity(&self) -> Capacity {
        Capacity { elements: self.elements, flops: 1 << 23, ..self.device.capacity() }
    }
}
