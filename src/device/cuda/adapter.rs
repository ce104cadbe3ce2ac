//! A GPU as the gate sees it: what it runs, what fits, a case made ready.

use super::cupti::{Activities, Events};
use super::device::CudaDevice;
use super::problem::CudaProblem;
use crate::core::candidate::Body;
use crate::device::fault::Fault;
use crate::device::fingerprint::Fingerprint;
use crate::device::trace::Recording;
use crate::device::{Capacity, Device, Job, Problem, RoundTrip};

impl Device for CudaDevice {
    fn fingerprint(&self) -> &Fingerprint {
        &self.fingerprint
    }

    fn runs(&self, body: &Body) -> bool {
        matches!(body, Body::Cuda(_) | Body::Enqueue(_))
    }

    fn prepare(&self, job: &Job<'_>) -> Result<Box<dyn Problem + '_>, Fault> {
        if self.is_lost() {
            return Err(Fault::Crash("an earlier failure has left the GPU unusable in this process".into()));
        }
        Ok(Box::new(self.fingerprint.gpu().during(|| CudaProblem::new(self, job))?))
    }

    fn round_trip(&self) -> Result<Option<RoundTrip>, Fault> {
        super::round_trip::measure(self).map(Some)
    }

    fn is_lost(&self) -> bool {
        self.context.is_abandoned()
    }

    fn recording(&self) -> Recording {
        match Activities::open() {
            Ok(activities) => Recording::with(Some(Box::new(activities)), "CUPTI"),
            Err(why) => Recording::with(Some(Box::new(Events::new(&self.context, why))), "CUDA events"),
        }
    }

    fn capacity(&self) -> Capacity {
        let memory = self.fingerprint.memory_bytes;
        Capacity {
            elements: 1 << 20,
            flops: 1 << 30,
            threads: usize::MAX,
            timed: true,
            timed_bytes: memory / 4,
            asked_bytes: memory / 4,
        }
    }
}
