//! What is here and what is missing. Never panics: a machine without a GPU is an ordinary machine.

use super::driver;
use super::presence::find_driver;
use crate::toolchain::{cache, nvrtc, toolkit};

/// One line of `kernelgate doctor`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked for.
    pub what: &'static str,
    /// What was found, or what is missing and how to get it.
    pub found: Result<String, String>,
}

/// Looks at everything that CUDA candidates need.
pub fn probe() -> Vec<Finding> {
    let gpus = find_driver().and_then(|version| {
        let names = (0..driver::device_count().map_err(|e| e.to_string())?)
            .map(|i| super::CudaDevice::open(i).map(|device| describe(&device)))
            .collect::<Result<Vec<_>, _>>()?;
        Ok((version, names))
    });
    let (driver, gpus) = match gpus {
        Ok((version, names)) => (Ok(version), Ok(names.join("; "))),
        Err(why) => (find_driver(), Err(why)),
    };
    let includes = toolkit::find().filter(|toolkit| !toolkit.includes.is_empty());
    let headers = includes.and_then(|toolkit| toolkit.includes.last().map(|folder| folder.display().to_string()));
    vec![
        Finding { what: "CUDA driver", found: driver },
        Finding { what: "GPU", found: gpus },
        Finding { what: "NVRTC", found: nvrtc::version().map_err(|why| format!("{why}: {}", toolkit::how_to_get())) },
        Finding {
            what: "CUDA headers",
            found: headers.ok_or_else(|| format!("cuda_fp16.h was not found: {}", toolkit::how_to_get())),
        },
        Finding {
            what: "kernel cache",
            found: match cache::folder() {
                Some(folder) if folder.exists() => cache::trusted(&folder).map(|()| folder.display().to_string()),
                Some(folder) => Ok(folder.display().to_string()),
                None => Err("no home folder: set KERNELGATE_CACHE to a folder".into()),
            },
        },
    ]
}

fn describe(device: &super::CudaDevice) -> String {
    use crate::device::Device as _;
    let fingerprint = device.fingerprint();
    format!("{} ({}, {} multiprocessors)", fingerprint.name, device.arch(), fingerprint.units)
}

#[cfg(test)]
mod tests {
    #[test]
    fn probing_answers_on_any_machine() {
        let findings = super::probe();
        assert_eq!(findings.len(), 5);
        for finding in findings {
            let text = finding.found.unwrap_or_else(|why| why);
            assert!(!text.is_empty(), "{}", finding.what);
        }
    }
}
