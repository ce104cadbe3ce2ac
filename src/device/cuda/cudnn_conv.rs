//! Convolutions by cuDNN: the fastest of its algorithms that sum products as they are.
#![expect(unsafe_code, reason = "the C interface of cuDNN")]

use super::choices::Choices;
use super::cudnn::{self, Handle, check, element};
use super::scratch::{Scratch, milliseconds};
use crate::core::candidate::Enqueue;
use crate::core::dtype::DType;
use cudarc::cudnn::sys::{
    self, cudnnConvolutionFwdAlgo_t as Algorithm, cudnnMathType_t as Math, cudnnStatus_t as Status,
};
use std::ffi::c_void;

/// Algorithms that the library has.
const ALGORITHMS: usize = 8;
/// Those that transform images first lose more digits than a sum of products may, above all in f16.
const TRANSFORMING: [Algorithm; 4] = [
    Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_FFT,
    Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING,
    Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD,
    Algorithm::CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED,
];

/// A convolution with sums in f32 (no TF32).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Convolution {
    /// Images, their channels, rows and columns.
    pub images: [usize; 4],
    /// Filters, their channels, rows and columns.
    pub filters: [usize; 4],
    /// Rows and columns of the output.
    pub places: [usize; 2],
    /// Places from one output to the next.
    pub stride: usize,
    /// Zeros around the image.
    pub padding: usize,
    /// Places from one tap to the next.
    pub dilation: usize,
    /// Whether channels are the innermost axis of all tensors.
    pub channels_inside: bool,
}

impl Convolution {
    fn outputs(&self) -> [usize; 4] {
        [self.images[0], self.filters[0], self.places[0], self.places[1]]
    }

    /// Elements of x, w and y.
    fn elements(&self) -> [usize; 3] {
        [self.images, self.filters, self.outputs()].map(|extents| extents.iter().product())
    }

    fn is_empty(&self) -> bool {
        self.elements()[2] == 0
    }
}

/// Bytes of scratch space that the library may use: copies of all tensors in another layout, and tables.
pub fn workspace_bytes(convolution: Convolution) -> usize {
    let elements: usize = convolution.elements().iter().sum();
    (1 << 20) + 8 * elements
}

/// Loads the library and chooses the algorithm for a shape, once a process. The context is current.
///
/// # Errors
/// Why there is no library or no algorithm, and what to do.
pub fn prepare(convolution: Convolution, dtype: DType) -> Result<(), String> {
    if convolution.is_empty() { Ok(()) } else { CHOICES.make(convolution, dtype, choose) }
}

/// Enqueues the convolution; [`prepare`] came before.
///
/// # Errors
/// What the library said.
pub fn enqueue(convolution: Convolution, call: &Enqueue) -> Result<(), String> {
    if convolution.is_empty() {
        return Ok(());
    }
    let choice = CHOICES.get(convolution, call.dtype).ok_or("cuDNN was not prepared for this shape")?;
    let description = Description::of(convolution, call.dtype, choice.math)?;
    let buffers = Buffers { x: call.inputs[0], w: call.inputs[1], y: call.outputs[0], workspace: call.workspace };
    let handle = cudnn::handle(call.stream)?;
    convolve(&handle, &description, choice.algorithm, &buffers, workspace_bytes(convolution))
}

/// Device addresses of a convolution.
struct Buffers {
    x: u64,
    w: u64,
    y: u64,
    workspace: u64,
}

fn convolve(
    handle: &Handle,
    description: &Description,
    algorithm: Algorithm,
    buffers: &Buffers,
    workspace_bytes: usize,
) -> Result<(), String> {
    let (one, zero) = (1.0f32, 0.0f32);
    let address = |device: u64| device as *mut c_void;
    // SAFETY: the descriptors are alive, the buffers have the extents that they describe, and alpha and beta are read
    // before the call returns.
    let status = unsafe {
        sys::cudnnConvolutionForward(
            handle.0,
            (&raw const one).cast(),
            description.images,
            address(buffers.x),
            description.filters,
            address(buffers.w),
            description.convolution,
            algorithm,
            address(buffers.workspace),
            workspace_bytes,
            (&raw const zero).cast(),
            description.outputs,
            address(buffers.y),
        )
    };
    check(status, "convolving")
}

/// An algorithm, and whether it takes tensor cores.
#[derive(Clone, Copy)]
struct Choice {
    algorithm: Algorithm,
    math: Math,
}

/// The algorithm that was chosen for a shape, by the library's names.
pub fn describe(convolution: Convolution, dtype: DType) -> Option<String> {
    let choice = CHOICES.get(convolution, dtype)?;
    Some(format!("cuDNN {}: {:?}, {:?}", cudnn::version(), choice.algorithm, choice.math))
}

static CHOICES: Choices<Convolution, Choice> = Choices::new();

/// Whether tensor cores would give other values than the gate's reference. f32 would be rounded to TF32; in f16, with
/// filters that are no multiple of 8, cuDNN 9 makes 0 of sums past the largest number, where it makes infinity else.
fn departs_on_tensor_cores(convolution: Convolution, dtype: DType) -> bool {
    dtype == DType::F32 || dtype == DType::F16 && !convolution.filters[0].is_multiple_of(8)
}

/// Lets the library run its algorithms, on memory of its own, and returns the fastest. Its own times are of one launch
/// each: those that run are measured again.
fn choose(convolution: Convolution, dtype: DType) -> Result<Choice, String> {
    let math = if dtype == DType::F32 { Math::CUDNN_FMA_MATH } else { Math::CUDNN_TENSOR_OP_MATH };
    let handle = cudnn::handle(0)?;
    let description = Description::of(convolution, dtype, math)?;
    let cuda = |error: cudarc::driver::DriverError| format!("choosing an algorithm of cuDNN: {:?}", error.0);
    let [x, w, y] = convolution.elements().map(|elements| Scratch::of(elements * dtype.size()));
    let (x, w, y) = (x.map_err(cuda)?, w.map_err(cuda)?, y.map_err(cuda)?);
    let workspace = Scratch::of(workspace_bytes(convolution)).map_err(cuda)?;
    let address = |memory: &Scratch| memory.0 as *mut c_void;
    // SAFETY: plain data.
    let mut measured: [sys::cudnnConvolutionFwdAlgoPerf_t; ALGORITHMS] = unsafe { std::mem::zeroed() };
    let mut count = 0;
    // SAFETY: the descriptors are alive, the memory has the extents that they describe, and the array has room for as
    // many results as are asked for.
    let status = unsafe {
        sys::cudnnFindConvolutionForwardAlgorithmEx(
            handle.0,
            description.images,
            address(&x),
            description.filters,
            address(&w),
            description.convolution,
            description.outputs,
            address(&y),
            ALGORITHMS as i32,
            &mut count,
            measured.as_mut_ptr(),
            address(&workspace),
            workspace_bytes(convolution),
        )
    };
    check(status, "measuring its algorithms")?;
    let buffers = Buffers { x: x.0, w: w.0, y: y.0, workspace: workspace.0 };
    let mut fastest: Option<(f32, Choice)> = None;
    for result in measured.iter().take(count as usize) {
        let runs = result.status == Status::CUDNN_STATUS_SUCCESS && result.memory <= workspace_bytes(convolution);
        let exact = result.mathType != Math::CUDNN_TENSOR_OP_MATH || !departs_on_tensor_cores(convolution, dtype);
        if !runs || !exact || TRANSFORMING.contains(&result.algo) {
            continue;
        }
        // Without tensor cores f32 must say so: the default may round its inputs to TF32.
        let math = if dtype == DType::F32 { math } else { result.mathType };
        let description = Description::of(convolution, dtype, math)?;
        let launch = || convolve(&handle, &description, result.algo, &buffers, workspace_bytes(convolution));
        let Ok(milliseconds) = milliseconds(launch) else { continue };
        if fastest.is_none_or(|(least, _)| milliseconds < least) {
            fastest = Some((milliseconds, Choice { algorithm: result.algo, math }));
        }
    }
    let (_, choice) = fastest.ok_or_else(|| format!("cuDNN runs none of its algorithms for {convolution:?}"))?;
    Ok(choice)
}

/// What the library is told of the tensors and the operation.
struct Description {
    images: sys::cudnnTensorDescriptor_t,
    filters: sys::cudnnFilterDescriptor_t,
    outputs: sys::cudnnTensorDescriptor_t,
    convolution: sys::cudnnConvolutionDescriptor_t,
}

impl Description {
    fn of(convolution: Convolution, dtype: DType, math: Math) -> Result<Self, String> {
        use sys::cudnnTensorFormat_t as Format;
        let format = if convolution.channels_inside { Format::CUDNN_TENSOR_NHWC } else { Format::CUDNN_TENSOR_NCHW };
        let element = element(dtype)?;
        // Null until they are made: dropping then destroys what there is.
        let mut made = Description {
            images: std::ptr::null_mut(),
            filters: std::ptr::null_mut(),
            outputs: std::ptr::null_mut(),
            convolution: std::ptr::null_mut(),
        };
        let (images, outputs) = (convolution.images, convolution.outputs());
        for (tensor, extents) in [(&mut made.images, images), (&mut made.outputs, outputs)] {
            let [n, c, h, w] = extents.map(|extent| extent as i32);
            // SAFETY: the pointer is valid for the call.
            check(unsafe { sys::cudnnCreateTensorDescriptor(tensor) }, "describing a tensor")?;
            // SAFETY: the descriptor is alive.
            let status = unsafe { sys::cudnnSetTensor4dDescriptor(*tensor, format, element, n, c, h, w) };
            check(status, "describing a tensor")?;
        }
        let [k, c, h, w] = convolution.filters.map(|extent| extent as i32);
        // SAFETY: the pointer is valid for the call.
        check(unsafe { sys::cudnnCreateFilterDescriptor(&mut made.filters) }, "describing the filters")?;
        // SAFETY: the descriptor is alive.
        let status = unsafe { sys::cudnnSetFilter4dDescriptor(made.filters, element, format, k, c, h, w) };
        check(status, "describing the filters")?;
        let numbers = [convolution.padding, convolution.stride, convolution.dilation];
        let [padding, stride, dilation] = numbers.map(|number| number as i32);
        // SAFETY: the pointer is valid for the call.
        check(unsafe { sys::cudnnCreateConvolutionDescriptor(&mut made.convolution) }, "describing the convolution")?;
        // SAFETY: the descriptor is alive.
        let status = unsafe {
            sys::cudnnSetConvolution2dDescriptor(
                made.convolution,
                padding,
                padding,
                stride,
                stride,
                dilation,
                dilation,
                sys::cudnnConvolutionMode_t::CUDNN_CROSS_CORRELATION,
                sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
            )
        };
        check(status, "describing the convolution")?;
        // SAFETY: as above.
        check(unsafe { sys::cudnnSetConvolutionMathType(made.convolution, math) }, "choosing the arithmetic")?;
        Ok(made)
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        for tensor in [self.images, self.outputs].into_iter().filter(|tensor| !tensor.is_null()) {
            // SAFETY: created once, destroyed once.
            let _ = unsafe { sys::cudnnDestroyTensorDescriptor(tensor) };
        }
        if !self.filters.is_null() {
            // SAFETY: as above.
            let _ = unsafe { sys::cudnnDestroyFilterDescriptor(self.filters) };
        }
        if !self.convolution.is_null() {
            // SAFETY: as above.
            let _ = unsafe { sys::cudnnDestroyConvolutionDescriptor(self.convolution) };
        }
    }
}
