//! cuBLASLt, loaded at run time: a matrix product by the fastest of the algorithms that the library proposes.
#![expect(unsafe_code, reason = "the C interface of cuBLASLt")]

use super::choices::Choices;
use super::cublaslt_tile as tile;
use super::scratch::{Scratch, milliseconds};
use crate::core::candidate::Enqueue;
use crate::core::dtype::DType;
use crate::core::work::Work;
use crate::toolchain::toolkit;
use cudarc::cublaslt::sys::{self, cublasLtMatmulAlgoConfigAttributes_t as Attribute, cublasStatus_t as Status};
use std::ffi::c_void;
use std::sync::OnceLock;

/// Algorithms that are measured for a shape.
const PROPOSALS: usize = 8;
/// What the gate promises of base pointers; the library assumes 256 unless told.
static ALIGNMENT_BYTES: u32 = 16;
/// Partial sums in the type of the computation only: in that of the output they cost more than the tolerance allows.
static REDUCTIONS: u32 = 2;

/// `CUBLAS_OP_T`, a `cublasOperation_t`.
const TRANSPOSED: i32 = 1;

/// A product of row-major matrices, `c[m,n] = a[m,k] b[k,n]`, with sums in f32 (no TF32), and what follows it; or a batch of
/// them, each tensor with its items one behind the other.
///
/// The inputs of its calls are a and b, then the bias where one follows, then what is added where something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Gemm {
    /// Products.
    pub batch: usize,
    /// Rows of a and c.
    pub m: usize,
    /// Columns of b and c.
    pub n: usize,
    /// Columns of a, rows of b.
    pub k: usize,
    /// Whether a is `[m, k]` in memory and not `[k, m]`.
    pub a_along_k: bool,
    /// Whether b is `[n, k]` in memory and not `[k, n]`.
    pub b_along_k: bool,
    /// What is done to the sums.
    pub epilogue: Epilogue,
    /// Whether a matrix like c is added to the sums.
    pub adds: bool,
}

impl Gemm {
    /// One product of matrices that lie as they are read, and nothing behind it.
    pub fn new(m: usize, n: usize, k: usize) -> Self {
        Gemm { batch: 1, m, n, k, a_along_k: true, b_along_k: false, epilogue: Epilogue::None, adds: false }
    }

    fn is_empty(&self) -> bool {
        self.batch * self.m == 0
    }

    /// Elements of a, b and c.
    fn elements(&self) -> [usize; 3] {
        [self.m * self.k, self.k * self.n, self.m * self.n].map(|of_item| self.batch * of_item)
    }
}

/// What the library can do to sums on their way to c.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Epilogue {
    /// Nothing.
    None,
    /// It adds a bias, an element a column.
    Bias,
}

impl Epilogue {
    fn code(self) -> sys::cublasLtEpilogue_t {
        match self {
            Epilogue::None => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_DEFAULT,
            Epilogue::Bias => sys::cublasLtEpilogue_t::CUBLASLT_EPILOGUE_BIAS,
        }
    }

    fn has_bias(self) -> bool {
        self != Epilogue::None
    }
}

/// Bytes of scratch space that the library may use.
pub fn workspace_bytes(gemm: Gemm) -> usize {
    // What its documentation recommends for Hopper; small products do with less, and the gate runs many of those.
    if gemm.batch * gemm.m * gemm.n * gemm.k < 1 << 27 { 4 << 20 } else { 32 << 20 }
}

/// Loads the library and chooses the algorithm for a shape, once a process. The context is current.
///
/// # Errors
/// Why there is no library or no algorithm, and what to do.
pub fn prepare(gemm: Gemm, dtype: DType) -> Result<(), String> {
    if gemm.is_empty() {
        return Ok(());
    }
    CHOICES.make(gemm, dtype, |gemm, dtype| choose(library()?, gemm, dtype))
}

/// Enqueues the product; [`prepare`] came before.
///
/// # Errors
/// What the library said.
pub fn enqueue(gemm: Gemm, call: &Enqueue) -> Result<(), String> {
    if gemm.is_empty() {
        return Ok(());
    }
    let algorithm = CHOICES.get(gemm, call.dtype).ok_or("cuBLASLt was not prepared for this shape")?;
    let (bias, added) = (call.inputs.get(2).copied(), call.inputs.get(3).copied());
    let buffers = Buffers {
        a: call.inputs[0],
        b: call.inputs[1],
        bias: bias.filter(|_| gemm.epilogue.has_bias()),
        added: added.filter(|_| gemm.adds),
        c: call.outputs[0],
        workspace: call.workspace,
        workspace_bytes: workspace_bytes(gemm),
    };
    let description = Description::of(gemm, call.dtype)?;
    multiply(library()?, &description, &algorithm, &buffers, call.stream)
}

/// The algorithm that was chosen for a shape, in the library's numbers.
pub fn describe(gemm: Gemm, dtype: DType) -> Option<String> {
    CHOICES.get(gemm, dtype).map(|algorithm| described(&algorithm))
}

/// The same, or of the algorithm that the library's heuristics put first where none was chosen yet: nothing is run. `None`
/// without the library or a GPU.
pub fn propose(gemm: Gemm, dtype: DType) -> Option<String> {
    let first = || -> Result<Option<sys::cublasLtMatmulAlgo_t>, String> {
        let library = library()?;
        let description = Description::of(gemm, dtype)?;
        Ok(proposals(library, &description, workspace_bytes(gemm))?.into_iter().next())
    };
    if gemm.is_empty() {
        return None;
    }
    CHOICES.get(gemm, dtype).or_else(|| first().ok()?).map(|algorithm| described(&algorithm))
}

fn described(algorithm: &sys::cublasLtMatmulAlgo_t) -> String {
    let number = |attribute| configured(algorithm, attribute).map_or_else(|| "?".to_owned(), |value| value.to_string());
    let parts = [
        ("algorithm", Attribute::CUBLASLT_ALGO_CONFIG_ID),
        ("tile", Attribute::CUBLASLT_ALGO_CONFIG_TILE_ID),
        ("stages", Attribute::CUBLASLT_ALGO_CONFIG_STAGES_ID),
        ("split_k", Attribute::CUBLASLT_ALGO_CONFIG_SPLITK_NUM),
        ("swizzle", Attribute::CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING),
        ("custom", Attribute::CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION),
        ("inner_shape", Attribute::CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID),
        ("cluster_shape", Attribute::CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID),
    ];
    parts.map(|(name, attribute)| format!("{name} {}", number(attribute))).join(", ")
}

/// The tiles of the algorithm that [`describe`] or [`propose`] told of; `None` for tiles whose extents are not known.
pub fn work(gemm: Gemm, dtype: DType, said: &str) -> Option<Work> {
    if gemm.is_empty() {
        return None;
    }
    let (number, parts) = tile::described(said)?;
    let extents = tile::extents(number)?;
    Some(tile::work(gemm.batch, [gemm.m, gemm.n, gemm.k], extents, parts.max(1) as usize, dtype.size()))
}

/// A number of an algorithm's configuration.
fn configured(algorithm: &sys::cublasLtMatmulAlgo_t, attribute: Attribute) -> Option<u32> {
    let (mut value, mut written) = (0u32, 0);
    // SAFETY: the algorithm is alive, and `value` has room for the four bytes of these attributes.
    let status = unsafe {
        sys::cublasLtMatmulAlgoConfigGetAttribute(algorithm, attribute, (&raw mut value).cast(), 4, &mut written)
    };
    // Some have two bytes: the rest stays 0.
    (status == Status::CUBLAS_STATUS_SUCCESS).then_some(value)
}

static CHOICES: Choices<Gemm, sys::cublasLtMatmulAlgo_t> = Choices::new();

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
            other => return Err(format!("cuBLASLt computes no product of {other} matrices here")),
        };
        // Null until it is made: dropping then destroys what there is.
        let mut made = Description { operation: std::ptr::null_mut(), layouts: [std::ptr::null_mut(); 3] };
        let compute = sys::cublasComputeType_t::CUBLAS_COMPUTE_32F;
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { sys::cublasLtMatmulDescCreate(&mut made.operation, compute, Type::CUDA_R_32F) };
        check(status, "describing the product")?;
        let b = if gemm.b_along_k { (gemm.k, gemm.n) } else { (gemm.n, gemm.k) };
        let a = if gemm.a_along_k { (gemm.k, gemm.m) } else { (gemm.m, gemm.k) };
        let shapes = [b, a, (gemm.n, gemm.m)];
        for (layout, (rows, columns)) in made.layouts.iter_mut().zip(shapes) {
            // SAFETY: as above.
            let status =
                unsafe { sys::cublasLtMatrixLayoutCreate(layout, element, rows as u64, columns as u64, rows as i64) };
            check(status, "describing a matrix")?;
            if gemm.batch > 1 {
                use sys::cublasLtMatrixLayoutAttribute_t as Attribute;
                set_layout(*layout, Attribute::CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &(gemm.batch as i32))?;
                let apart = (rows * columns) as i64;
                set_layout(*layout, Attribute::CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart)?;
            }
        }
        use sys::cublasLtMatmulDescAttributes_t as Attribute;
        if gemm.b_along_k {
            made.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSA, &TRANSPOSED)?;
        }
        if !gemm.a_along_k {
            made.set(Attribute::CUBLASLT_MATMUL_DESC_TRANSB, &TRANSPOSED)?;
        }
        made.set(Attribute::CUBLASLT_MATMUL_DESC_EPILOGUE, &gemm.epilogue.code())?;
        Ok(made)
    }

    /// Sets an attribute, whose type is `T`.
    fn set<T: Copy>(&self, attribute: sys::cublasLtMatmulDescAttributes_t, value: &T) -> Result<(), String> {
        // SAFETY: the descriptor is alive, and `value` holds that many bytes, which the call copies.
        let status = unsafe {
            sys::cublasLtMatmulDescSetAttribute(
                self.operation,
                attribute,
                std::ptr::from_ref(value).cast(),
                size_of::<T>(),
            )
        };
        check(status, "describing the product")
    }
}

/// Sets an attribute of a matrix, whose type is `T`.
fn set_layout<T: Copy>(
    layout: sys::cublasLtMatrixLayout_t,
    attribute: sys::cublasLtMatrixLayoutAttribute_t,
    value: &T,
) -> Result<(), String> {
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the layout is alive, and `value` holds that many bytes, which the call copies.
    let status = unsafe { sys::cublasLtMatrixLayoutSetAttribute(layout, attribute, value, size_of::<T>()) };
    check(status, "describing a matrix")
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
    /// Of n elements, where the epilogue takes one.
    bias: Option<u64>,
    /// Like c, where something is added.
    added: Option<u64>,
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
    let (share_of_added, added) = buffers.added.map_or((&zero, buffers.c), |added| (&one, added));
    if let Some(bias) = buffers.bias {
        description.set(sys::cublasLtMatmulDescAttributes_t::CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias)?;
    }
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
            std::ptr::from_ref(share_of_added).cast(),
            address(added),
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
    let proposals = proposals(library, &description, workspace_bytes(gemm))?;
    let cuda = |error: cudarc::driver::DriverError| format!("choosing an algorithm of cuBLASLt: {:?}", error.0);
    let scratch = |elements: usize| Scratch::of(elements * dtype.size()).map_err(cuda);
    let [a, b, c] = gemm.elements();
    let (a, b, c) = (scratch(a)?, scratch(b)?, scratch(c)?);
    let bias = gemm.epilogue.has_bias().then(|| scratch(gemm.n)).transpose()?;
    let added = gemm.adds.then(|| scratch(gemm.elements()[2])).transpose()?;
    let workspace = Scratch::of(workspace_bytes(gemm)).map_err(cuda)?;
    let buffers = Buffers {
        a: a.0,
        b: b.0,
        bias: bias.as_ref().map(|bias| bias.0),
        added: added.as_ref().map(|added| added.0),
        c: c.0,
        workspace: workspace.0,
        workspace_bytes: workspace_bytes(gemm),
    };
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
fn proposals(
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
