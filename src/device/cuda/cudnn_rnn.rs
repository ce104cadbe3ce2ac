//! LSTMs by cuDNN: the fastest of its algorithms.
//!
//! The library wants all weights in one block of its own layout: they are copied there on the stream, before each run.
#![expect(unsafe_code, reason = "the C interface of cuDNN")]

use super::choices::Choices;
use super::cudnn::{self, check, element};
use super::scratch::Scratch;
use crate::core::candidate::Enqueue;
use crate::core::dtype::DType;
use cudarc::cudnn::sys::{self, cudnnRNNAlgo_t as Algorithm};
use cudarc::driver::{DriverError, result as driver};
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

const GATES: usize = 4;
/// Not every one serves every shape and dtype.
const ALGORITHMS: [Algorithm; 3] = [
    Algorithm::CUDNN_RNN_ALGO_STANDARD,
    Algorithm::CUDNN_RNN_ALGO_PERSIST_STATIC,
    Algorithm::CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H,
];
/// Runs of each that are measured at once, after as many to warm up.
const RUNS: u32 = 3;

/// Layers of an LSTM, gates in the order i, f, g, o, with one bias and states that start as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lstm {
    /// Steps in time.
    pub steps: usize,
    /// Sequences.
    pub batch: usize,
    /// Elements of an input of the first layer.
    pub inputs: usize,
    /// Elements of a state.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
}

impl Lstm {
    fn width(&self, layer: usize) -> usize {
        if layer == 0 { self.inputs } else { self.hidden }
    }

    fn weights(&self) -> usize {
        (0..self.layers).map(|layer| GATES * self.hidden * (self.width(layer) + self.hidden + 2)).sum()
    }
}

/// Bytes for the weights in the layout of the library, with room to align them.
pub fn workspace_bytes(lstm: Lstm) -> usize {
    const ROOM: usize = 1 << 16;
    lstm.weights() * size_of::<f32>() + ROOM
}

/// Loads the library and chooses the algorithm for a shape, once a process. The context is current.
///
/// # Errors
/// Why there is no library or no algorithm, and what to do.
pub fn prepare(lstm: Lstm, dtype: DType) -> Result<(), String> {
    if lstm.batch == 0 { Ok(()) } else { CHOICES.make(lstm, dtype, choose) }
}

/// Enqueues the layers; [`prepare`] came before. Inputs: x, the weights of its first layer and of those above, the
/// recurrent weights, the biases. Outputs: the last layer's states, the last states and cells of all layers.
///
/// # Errors
/// What the library said.
pub fn enqueue(lstm: Lstm, call: &Enqueue) -> Result<(), String> {
    if lstm.batch == 0 {
        return Ok(());
    }
    let algorithm = CHOICES.get(lstm, call.dtype).ok_or("cuDNN was not prepared for this shape")?;
    run(&Description::of(lstm, call.dtype, algorithm)?, call)
}

/// The algorithm that was chosen for a shape, by the library's name.
pub fn describe(lstm: Lstm, dtype: DType) -> Option<String> {
    let algorithm = CHOICES.get(lstm, dtype)?;
    Some(format!("cuDNN {}: {algorithm:?}", cudnn::version()))
}

static CHOICES: Choices<Lstm, Algorithm> = Choices::new();

fn cuda(error: DriverError) -> String {
    format!("an LSTM of cuDNN: {:?}", error.0)
}

/// Measures the algorithms on memory of its own and returns the fastest.
fn choose(lstm: Lstm, dtype: DType) -> Result<Algorithm, String> {
    let cells = lstm.batch * lstm.hidden;
    let rows = lstm.steps * lstm.batch;
    let of_rows = GATES * lstm.hidden;
    let scratch = |elements: usize| Scratch::of(elements * dtype.size()).map_err(cuda);
    let above = (lstm.layers - 1) * of_rows * lstm.hidden;
    let weights = [of_rows * lstm.inputs, above, lstm.layers * of_rows * lstm.hidden, lstm.layers * of_rows];
    let inputs = [rows * lstm.inputs].into_iter().chain(weights).map(scratch).collect::<Result<Vec<_>, _>>()?;
    let states = lstm.layers * cells;
    let outputs = [rows * lstm.hidden, states, states].into_iter().map(scratch).collect::<Result<Vec<_>, _>>()?;
    let workspace = Scratch::of(workspace_bytes(lstm)).map_err(cuda)?;
    let addresses = |memory: &[Scratch]| memory.iter().map(|memory| memory.0).collect::<Vec<u64>>();
    let call =
        Enqueue { stream: 0, inputs: addresses(&inputs), outputs: addresses(&outputs), workspace: workspace.0, dtype };
    let mut fastest: Option<(Duration, Algorithm)> = None;
    let mut refusal = String::new();
    for algorithm in ALGORITHMS {
        match measure(lstm, algorithm, &call) {
            Ok(time) if fastest.is_none_or(|(least, _)| time < least) => fastest = Some((time, algorithm)),
            Ok(_) => {}
            Err(error) => refusal = error,
        }
    }
    fastest.map(|(_, algorithm)| algorithm).ok_or(refusal)
}

/// How long the runs of an algorithm take, or why it does not serve the shape.
fn measure(lstm: Lstm, algorithm: Algorithm, call: &Enqueue) -> Result<Duration, String> {
    let description = Description::of(lstm, call.dtype, algorithm)?;
    let runs = || {
        (0..RUNS).try_for_each(|_| run(&description, call))?;
        // SAFETY: null is the default stream.
        unsafe { driver::stream::synchronize(std::ptr::null_mut()) }.map_err(cuda)
    };
    runs()?;
    let begun = Instant::now();
    runs()?;
    Ok(begun.elapsed())
}

/// Scratch memory of the library for any shape so far. What was smaller is kept, since recorded launches may know it.
fn temporary(bytes: usize) -> Result<(u64, usize), String> {
    static TEMPORARY: Mutex<Vec<(u64, usize)>> = Mutex::new(Vec::new());
    let mut kept = TEMPORARY.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(last) = kept.last().filter(|(_, there)| *there >= bytes) {
        return Ok(*last);
    }
    let bytes = bytes.next_power_of_two();
    let memory = Scratch::of(bytes).map_err(cuda)?;
    kept.push((memory.0, bytes));
    std::mem::forget(memory);
    Ok((kept[kept.len() - 1].0, bytes))
}

/// Copies the weights into place and enqueues the layers.
fn run(description: &Description, call: &Enqueue) -> Result<(), String> {
    let handle = cudnn::handle(call.stream)?;
    let stream = call.stream as cudarc::driver::sys::CUstream;
    let lstm = description.lstm;
    let (mut temporary_bytes, mut reserve_bytes, mut weight_bytes) = (0, 0, 0);
    let inference = sys::cudnnForwardMode_t::CUDNN_FWD_MODE_INFERENCE;
    // SAFETY: the descriptors are alive, the pointers valid for the calls.
    let status = unsafe {
        let (temporary, reserve) = (&mut temporary_bytes, &mut reserve_bytes);
        sys::cudnnGetRNNTempSpaceSizes(handle.0, description.rnn, inference, description.x, temporary, reserve)
    };
    check(status, "asking for its scratch memory")?;
    // SAFETY: as above.
    let status = unsafe { sys::cudnnGetRNNWeightSpaceSize(handle.0, description.rnn, &mut weight_bytes) };
    check(status, "asking for the weights")?;
    if weight_bytes > workspace_bytes(lstm) {
        return Err(format!("cuDNN takes {weight_bytes} bytes for the weights of {lstm:?}"));
    }
    for copy in description.copies(&handle, weight_bytes, call)? {
        // SAFETY: both ranges lie inside the buffers of the case, as the library describes its own.
        unsafe { driver::memcpy_dtod_async(copy.to, copy.from, copy.bytes, stream) }.map_err(cuda)?;
    }
    let (memory, _) = temporary(temporary_bytes)?;
    let address = |device: u64| device as *mut c_void;
    let nothing = std::ptr::null_mut();
    // SAFETY: the descriptors are alive, the buffers have the extents that they describe.
    let status = unsafe {
        sys::cudnnRNNForward(
            handle.0,
            description.rnn,
            inference,
            std::ptr::null(),
            description.x,
            address(call.inputs[0]),
            description.y,
            address(call.outputs[0]),
            description.states,
            nothing,
            address(call.outputs[1]),
            description.states,
            nothing,
            address(call.outputs[2]),
            weight_bytes,
            address(call.workspace),
            temporary_bytes,
            address(memory),
            0,
            nothing,
        )
    };
    check(status, "running the layers")
}

/// Bytes that go from one place of a device to another.
#[derive(Clone, Copy)]
struct Copy {
    to: u64,
    from: u64,
    bytes: usize,
}

/// What the library is told of the layers and the tensors.
struct Description {
    lstm: Lstm,
    rnn: sys::cudnnRNNDescriptor_t,
    dropout: sys::cudnnDropoutDescriptor_t,
    x: sys::cudnnRNNDataDescriptor_t,
    y: sys::cudnnRNNDataDescriptor_t,
    states: sys::cudnnTensorDescriptor_t,
    /// For the weights and the bias of a gate, as the library describes them.
    gate: [sys::cudnnTensorDescriptor_t; 2],
}

impl Description {
    fn of(lstm: Lstm, dtype: DType, algorithm: Algorithm) -> Result<Self, String> {
        // Null until they are made: dropping then destroys what there is.
        let mut made = Description {
            lstm,
            rnn: std::ptr::null_mut(),
            dropout: std::ptr::null_mut(),
            x: std::ptr::null_mut(),
            y: std::ptr::null_mut(),
            states: std::ptr::null_mut(),
            gate: [std::ptr::null_mut(); 2],
        };
        made.describe_layers(dtype, algorithm)?;
        made.describe_tensors(dtype)?;
        Ok(made)
    }

    fn describe_layers(&mut self, dtype: DType, algorithm: Algorithm) -> Result<(), String> {
        const WHAT: &str = "describing the layers";
        // SAFETY: the pointer is valid for the call.
        check(unsafe { sys::cudnnCreateDropoutDescriptor(&mut self.dropout) }, WHAT)?;
        let handle = cudnn::handle(0)?;
        // SAFETY: the descriptor and the handle are alive; nothing is dropped, so there are no states.
        check(
            unsafe { sys::cudnnSetDropoutDescriptor(self.dropout, handle.0, 0.0, std::ptr::null_mut(), 0, 0) },
            WHAT,
        )?;
        // SAFETY: the pointer is valid for the call.
        check(unsafe { sys::cudnnCreateRNNDescriptor(&mut self.rnn) }, WHAT)?;
        let math = match dtype {
            DType::F32 => sys::cudnnMathType_t::CUDNN_FMA_MATH,
            _ => sys::cudnnMathType_t::CUDNN_TENSOR_OP_MATH,
        };
        const PADDED_ROWS: u32 = 1;
        // SAFETY: the descriptors are alive.
        let status = unsafe {
            sys::cudnnSetRNNDescriptor_v8(
                self.rnn,
                algorithm,
                sys::cudnnRNNMode_t::CUDNN_LSTM,
                sys::cudnnRNNBiasMode_t::CUDNN_RNN_SINGLE_INP_BIAS,
                sys::cudnnDirectionMode_t::CUDNN_UNIDIRECTIONAL,
                sys::cudnnRNNInputMode_t::CUDNN_LINEAR_INPUT,
                element(dtype)?,
                sys::cudnnDataType_t::CUDNN_DATA_FLOAT,
                math,
                self.lstm.inputs as i32,
                self.lstm.hidden as i32,
                self.lstm.hidden as i32,
                self.lstm.layers as i32,
                self.dropout,
                PADDED_ROWS,
            )
        };
        check(status, WHAT)
    }

    fn describe_tensors(&mut self, dtype: DType) -> Result<(), String> {
        const WHAT: &str = "describing a tensor";
        let (element, lstm) = (element(dtype)?, self.lstm);
        let layout = sys::cudnnRNNDataLayout_t::CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
        let lengths = vec![lstm.steps as i32; lstm.batch];
        for (tensor, width) in [(&mut self.x, lstm.inputs), (&mut self.y, lstm.hidden)] {
            // SAFETY: the pointer is valid for the call.
            check(unsafe { sys::cudnnCreateRNNDataDescriptor(tensor) }, WHAT)?;
            let (steps, batch) = (lstm.steps as i32, lstm.batch as i32);
            let nothing = std::ptr::null_mut();
            // SAFETY: the descriptor is alive, and there is a length for every sequence.
            let status = unsafe {
                let lengths = lengths.as_ptr();
                sys::cudnnSetRNNDataDescriptor(*tensor, element, layout, steps, batch, width as i32, lengths, nothing)
            };
            check(status, WHAT)?;
        }
        for tensor in [&mut self.states].into_iter().chain(&mut self.gate) {
            // SAFETY: the pointer is valid for the call.
            check(unsafe { sys::cudnnCreateTensorDescriptor(tensor) }, WHAT)?;
        }
        let extents = [lstm.layers, lstm.batch, lstm.hidden].map(|extent| extent as i32);
        let strides = [lstm.batch * lstm.hidden, lstm.hidden, 1].map(|stride| stride as i32);
        // SAFETY: the descriptor is alive, and both arrays have three elements.
        let status =
            unsafe { sys::cudnnSetTensorNdDescriptor(self.states, element, 3, extents.as_ptr(), strides.as_ptr()) };
        check(status, WHAT)
    }

    /// Where the weights go, neighbours in one.
    fn copies(&self, handle: &cudnn::Handle, weight_bytes: usize, call: &Enqueue) -> Result<Vec<Copy>, String> {
        let (hidden, size) = (self.lstm.hidden, call.dtype.size());
        let (of_w, of_r) = (|layer| GATES * hidden * self.lstm.width(layer) * size, GATES * hidden * hidden * size);
        let mut wanted = Vec::new();
        for layer in 0..self.lstm.layers {
            let w = if layer == 0 { call.inputs[1] } else { call.inputs[2] + ((layer - 1) * of_w(layer)) as u64 };
            let r = call.inputs[3] + (layer * of_r) as u64;
            let bias = call.inputs[4] + (layer * GATES * hidden * size) as u64;
            for gate in 0..GATES {
                let place = |of_gate: usize| (gate * of_gate) as u64;
                let (w_bytes, r_bytes) = (of_w(layer) / GATES, of_r / GATES);
                let (to_w, to_bias) = self.place(handle, weight_bytes, call.workspace, layer, gate)?;
                let (to_r, _) = self.place(handle, weight_bytes, call.workspace, layer, GATES + gate)?;
                wanted.push(Copy { to: to_w, from: w + place(w_bytes), bytes: w_bytes });
                wanted.push(Copy { to: to_r, from: r + place(r_bytes), bytes: r_bytes });
                wanted.push(Copy { to: to_bias, from: bias + place(hidden * size), bytes: hidden * size });
            }
        }
        wanted.sort_by_key(|copy| copy.to);
        let mut copies: Vec<Copy> = Vec::new();
        for copy in wanted {
            match copies.last_mut() {
                Some(last) if [last.to, last.from].map(|at| at + last.bytes as u64) == [copy.to, copy.from] => {
                    last.bytes += copy.bytes;
                }
                _ => copies.push(copy),
            }
        }
        Ok(copies)
    }

    /// The addresses of the weights and of the bias of one of the eight products of a layer.
    fn place(
        &self,
        handle: &cudnn::Handle,
        weight_bytes: usize,
        space: u64,
        layer: usize,
        product: usize,
    ) -> Result<(u64, u64), String> {
        let (mut weights, mut bias) = (std::ptr::null_mut(), std::ptr::null_mut());
        let [of_weights, of_bias] = self.gate;
        // SAFETY: the descriptors are alive, the pointers valid for the call; the space is looked at by address alone.
        let status = unsafe {
            sys::cudnnGetRNNWeightParams(
                handle.0,
                self.rnn,
                layer as i32,
                weight_bytes,
                space as *const c_void,
                product as i32,
                of_weights,
                &mut weights,
                of_bias,
                &mut bias,
            )
        };
        check(status, "asking where weights go")?;
        Ok((weights as u64, bias as u64))
    }
}

impl Drop for Description {
    fn drop(&mut self) {
        for tensor in [self.states].into_iter().chain(self.gate).filter(|tensor| !tensor.is_null()) {
            // SAFETY: created once, destroyed once.
            let _ = unsafe { sys::cudnnDestroyTensorDescriptor(tensor) };
        }
        for tensor in [self.x, self.y].into_iter().filter(|tensor| !tensor.is_null()) {
            // SAFETY: as above.
            let _ = unsafe { sys::cudnnDestroyRNNDataDescriptor(tensor) };
        }
        if !self.rnn.is_null() {
            // SAFETY: as above.
            let _ = unsafe { sys::cudnnDestroyRNNDescriptor(self.rnn) };
        }
        if !self.dropout.is_null() {
            // SAFETY: as above.
            let _ = unsafe { sys::cudnnDestroyDropoutDescriptor(self.dropout) };
        }
    }
}
