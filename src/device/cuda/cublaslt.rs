//! cuBLASLt, loaded at run time: a matrix product by the fastest of the algorithms that the library proposes.
#![expect(unsafe_code, reason = "the C interface of cuBLASLt")]

use super::scratch::{Scratch, milliseconds};
use super::toolkit;
use crate::core::candidate::Enqueue;
use crate::core::dtype::DType;
use cudarc::cublaslt::sys::{self, cublasStatus_t as Status};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Algorithms that are measured for a shape.
const PROPOSALS: usize = 8;
/// What the gate promises of base pointers; the library assumes 256 unless told.
static ALIGNMENT_BYTES: u32 = 16;
/// Partial sums in the type of the computation only: in that of the output they cost more than the tolerance allows.
static REDUCTIONS: u32 = 2;

/// A product of row-major matrices, `c[m,n] = a[m,k] b[k,n]`, with sums in f32 (no TF32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gemm {
    /// Rows of a and c.
    pub m: usize,
    /// Columns of b and c.
    pub n: usize,
    /// Columns of a, rows of b.
    pub k: usize,
}

/// Bytes of scratch space that the library may use.
pub fn workspace_bytes(gemm: Gemm) -> usize {
    // What its documentation recommends for Hopper; small products do with less, and the gate runs many of those.
    if gemm.m * gemm.n * gemm.k < 1 << 27 { 4 << 20 } else { 32 << 20 }
}

/// Loads the library and chooses the algorithm for a shape, once a process. The context is current.
///
/// # Errors
/// Why there is no library or no algorithm, and what to do.
pub fn prepare(gemm: Gemm, dtype: DType) -> Result<(), String> {
    if gemm.m == 0 || chosen(gemm, dtype).is_some() {
        return Ok(());
    }
    let algorithm = choose(library()?, gemm, dtype)?;
    choices().lock().unwrap_or_else(PoisonError::into_inner).insert((gemm, dtype), algorithm);
    Ok(())
}

/// Enqueues the product; [`prepare`] came before.
///
/// # Errors
/// What the library said.
pub fn enqueue(gemm: Gemm, call: &Enqueue) -> Result<(), String> {
    if gemm.m == 0 {
        return Ok(());
    }
    let algorithm = chosen(gemm, call.dtype).ok_or("cuBLASLt was not prepared for this shape")?;
    let buffers = Buffers {
        a: call.inputs[0],
        b: call.inputs[1],
        c: call.outputs[0],
        workspace: call.workspace,
        workspace_bytes: workspace_bytes(gemm),
    };
    let description = Description::of(gemm, call.dtype)?;
    multiply(library()?, &description, &algorithm, &buffers, call.stream)
}

type Choices = Mutex<HashMap<(Gemm, DType), sys::cublasLtMatmulAlgo_t>>;

fn choices() -> &'static Choices {
    static CHOICES: OnceLock<Choices> = OnceLock::new();
    CHOICES.get_or_init(Choices::default)
}

fn chosen(gemm: Gemm, dtype: DType) -> Option<sys::cublasLtMatmulAlgo_t> {
    choices().lock().unwrap_or_else(PoisonError::into_inner).get(&(gemm, dtype)).copied()
}

fn check(status: Status, what: &str) -> Result<(), String> {
    if status == Status::CUBLAS_STATUS_SUCCESS { Ok(()) } else { Err(format!("cuBLASLt, {what}: {status:?}")) }
}

/// A handle of the library, alive as long as the process.
#[derive(Clone, Copy)]
struct Library(sys::cublasLtHandle_t);

// SAFETY: the library's documentation allows a handle on any thread.
unsafe impl Send for Library {}
// SAFETY: as above; calls with one handle may run at the same time.
unsafe impl Sync for Library {}

/// Opens the library, from the loader's path or from a toolkit, once a process.
fn library() -> Result<Library, String> {
    static LIBRARY: OnceLock<Result<Library, String>> = OnceLock::new();
    let open = || {
        // SAFETY: only tries to open the library.
        if !unsafe { sys::is_culib_present() } {
            toolkit::bring_in(&["libcublasLt.so.13", "libcublasLt.so.12"]);
        }
        // SAFETY: as above.
        if !unsafe { sys::is_culib_present() } {
            return Err(
                "there is no libcublasLt: install CUDA's cuBLAS (the wheel `nvidia-cublas`) and name its folder \
                        in LD_LIBRARY_PATH or KERNELGATE_CUDA_HOME"
                    .to_owned(),
            );
        }
        let mut handle = std::ptr::null_mut();
        // SAFETY: the library is present, the pointer valid for the call; the handle is kept for good.
        check(unsafe { sys::cublasLtCreate(&mut handle) }, "opening it")?;
        Ok(Library(handle))
    };
    LIBRARY.get_or_init(open).clone()
}

/// The operation and the layouts of its matrices. The library counts columns first, so it is told that cᵀ = bᵀ aᵀ.
struct Description {
    operation: sys::cublasLtMatmulDesc_t,
    /// Of b, a and c.
    layouts: [sys::cublasLtMatrixLayout_t; 3],
}

impl Description {
    fn of(gemm: Gemm, dtype: DType) -> Result<Self, String> {
        use sys::cudaDataType_t as Type;
        let element = match dtype {
            DType::F32 => Type::CUDA_R_32F,
            DType::F16 => Type::CUDA_R_16F,
            DType::BF16 => Type::CUDA_R_16BF,
            DType::I32 => return Err("cuBLASLt has no product of int matrices here".into()),
        };
        // Null until it is made: dropping then destroys what there is.
        let mut made = Description { operation: std::ptr::null_mut(), layouts: [std::ptr::null_mut(); 3] };
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { sys::cublasLtMatmulDescCreate(&mut made.operation, compute, Type::CUDA_R_32F) };
        check(status, "describing the product")?;
        let shapes = [(gemm.n, gemm.k), (gemm.k, gemm.m), (gemm.n, gemm.m)];
        for (layout, (rows, columns)) in made.layouts.iter_mut().zip(shapes) {
            // SAFETY: as above.
            let status =
                unsafe { sys::cublasLtMatrixLayoutCreate(layout, element, rows as u64, columns as u64, rows as i64) };
            check(status, "describing a matrix")?;
        }
        Ok(made)
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        for layout in self.layouts.into_iter().filter(|layout| !layout.is_null()) {
            // SAFETY: created once, destroyed once.
            let _ = unsafe { sys::cublasLtMatrixLayoutDestroy(layout) };
        }
        if !self.operation.is_null() {
            // SAFETY: as above.
            let _ = unsafe { sys::cublasLtMatmulDescDestroy(self.operation) };
        }
    }
}

/// Device addresses of a product.
struct Buffers {
    a: u64,
    b: u64,
    c: u64,
    workspace: u64,
    workspace_bytes: usize,
}

fn multiply(
    library: Library,
    description: &Description,
    algorithm: &sys::cublasLtMatmulAlgo_t,
    buffers: &Buffers,
    stream: u64,
) -> Result<(), String> {
    let (one, zero) = (1.0f32, 0.0f32);
    let [b, a, c] = description.layouts;
    let address = |device: u64| device as *mut c_void;
    // SAFETY: the descriptors are alive, the buffers have the extents that they describe, alpha and beta are read
    // before the call returns, and the stream belongs to the current context.
    let status = unsafe {
        sys::cublasLtMatmul(
            library.0,
            description.operation,
            (&raw const one).cast(),
            address(buffers.b),
            b,
            address(buffers.a),
            a,
            (&raw const zero).cast(),
            address(buffers.c),
            c,
            address(buffers.c),
            c,
            algorithm,
            address(buffers.workspace),
            buffers.workspace_bytes,
            stream as sys::cudaStream_t,
        )
    };
    check(status, "multiplying")
}

/// Measures what the library proposes for a shape, on memory of its own, and returns the fastest.
fn choose(library: Library, gemm: Gemm, dtype: DType) -> Result<sys::cublasLtMatmulAlgo_t, String> {
    let description = Description::of(gemm, dtype)?;
    let proposals = propose(library, &description, workspace_bytes(gemm))?;
    let cuda = |error: cudarc::driver::DriverError| format!("choosing an algorithm of cuBLASLt: {:?}", error.0);
    let elements = [gemm.m * gemm.k, gemm.k * gemm.n, gemm.m * gemm.n];
    let [a, b, c] = elements.map(|elements| Scratch::of(elements * dtype.size()));
    let (a, b, c) = (a.map_err(cuda)?, b.map_err(cuda)?, c.map_err(cuda)?);
    let workspace = Scratch::of(workspace_bytes(gemm)).map_err(cuda)?;
    let buffers = Buffers { a: a.0, b: b.0, c: c.0, workspace: workspace.0, workspace_bytes: workspace_bytes(gemm) };
    let mut fastest: Option<(f32, sys::cublasLtMatmulAlgo_t)> = None;
    for algorithm in proposals {
        let launch = || multiply(library, &description, &algorithm, &buffers, 0);
        let Ok(milliseconds) = milliseconds(launch) else { continue };
        if fastest.is_none_or(|(least, _)| milliseconds < least) {
            fastest = Some((milliseconds, algorithm));
        }
    }
    let (_, algorithm) = fastest.ok_or_else(|| format!("cuBLASLt runs none of its algorithms for {gemm:?}"))?;
    Ok(algorithm)
}

/// The algorithms that the library's heuristics put first.
fn propose(
    library: Library,
    description: &Description,
    workspace_bytes: usize,
) -> Result<Vec<sys::cublasLtMatmulAlgo_t>, String> {
    use sys::cublasLtMatmulPreferenceAttributes_t as Attribute;
    let mut preference = std::ptr::null_mut();
    // SAFETY: the pointer is valid for the call; the preference is destroyed below.
    check(unsafe { sys::cublasLtMatmulPreferenceCreate(&mut preference) }, "stating preferences")?;
    let set = |attribute, value: *const c_void, bytes| {
        // SAFETY: the preference is alive and `value` holds that many bytes, which the call copies.
        check(
            unsafe { sys::cublasLtMatmulPreferenceSetAttribute(preference, attribute, value, bytes) },
            "stating preferences",
        )
    };
    let alignments = [
        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES,
        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
        Attribute::CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES,
    ];
    let workspace = Attribute::CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES;
    let stated = set(workspace, (&raw const workspace_bytes).cast(), size_of::<usize>())
        .and_then(|()| set(Attribute::CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, (&raw const REDUCTIONS).cast(), 4))
        .and_then(|()| {
            alignments.into_iter().try_for_each(|attribute| set(attribute, (&raw const ALIGNMENT_BYTES).cast(), 4))
        });
    // SAFETY: plain data.
    let mut found: [sys::cublasLtMatmulHeuristicResult_t; PROPOSALS] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    let [b, a, c] = description.layouts;
    let asked = stated.and_then(|()| {
        // SAFETY: every descriptor is alive, and the array has room for as many results as are asked for.
        let status = unsafe {
            sys::cublasLtMatmulAlgoGetHeuristic(
                library.0,
                description.operation,
                b,
                a,
                c,
                c,
                preference,
                PROPOSALS as i32,
                found.as_mut_ptr(),
                &mut count,
            )
        };
        check(status, "asking for algorithms")
    });
    // SAFETY: created once, destroyed once.
    let _ = unsafe { sys::cublasLtMatmulPreferenceDestroy(preference) };
    asked?;
    let found = found.iter().take(count as usize).filter(|result| result.state == Status::CUBLAS_STATUS_SUCCESS);
    Ok(found.map(|result| result.algo).collect())
}
