//! Graphs of cuDNN: tensors and operations are described, the library proposes plans for the whole, and a plan runs.
#![expect(unsafe_code, reason = "the C interface of cuDNN")]

use super::cudnn::{Handle, check};
use cudarc::cudnn::sys::{
    self, cudnnBackendAttributeName_t as Name, cudnnBackendAttributeType_t as Form,
    cudnnBackendDescriptorType_t as Kind, cudnnBackendHeurMode_t as Heuristics, cudnnDataType_t as Type,
    cudnnPointwiseMode_t as Pointwise, cudnnReduceTensorOp_t as Reduction,
};
use std::ffi::c_void;

/// Plans that are asked for.
const MOST_PLANS: usize = 8;
/// Bytes that the address of every tensor is a multiple of.
const ALIGNMENT: i64 = 16;

/// What an attribute of a descriptor may hold.
///
/// # Safety
/// The library reads and writes values of `FORM` as `Self` lies in memory.
unsafe trait Value: Copy {
    const FORM: Form;
}

/// A descriptor by its address, for attributes that name others.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Raw(sys::cudnnBackendDescriptor_t);

/// An address of data, on the device or the host.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Address(*mut c_void);

/// What is noted of an engine's arithmetic: a number, since a later library has more of them.
#[derive(Clone, Copy, PartialEq)]
#[repr(transparent)]
struct Note(i32);

/// Inputs or partial sums in a narrower type than was asked for.
const LOSSY: [Note; 2] = [
    Note(sys::cudnnBackendNumericalNote_t::CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS as i32),
    Note(sys::cudnnBackendNumericalNote_t::CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION as i32),
];

macro_rules! values {
    ($($value:ty: $form:ident),* $(,)?) => {
        $(
            // SAFETY: as the library's header pairs them.
            unsafe impl Value for $value {
                const FORM: Form = Form::$form;
            }
        )*
    };
}

values!(
    i64: CUDNN_TYPE_INT64,
    bool: CUDNN_TYPE_BOOLEAN,
    Type: CUDNN_TYPE_DATA_TYPE,
    Pointwise: CUDNN_TYPE_POINTWISE_MODE,
    Reduction: CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
    Heuristics: CUDNN_TYPE_HEUR_MODE,
    Note: CUDNN_TYPE_NUMERICAL_NOTE,
    Raw: CUDNN_TYPE_BACKEND_DESCRIPTOR,
    Address: CUDNN_TYPE_VOID_PTR,
    sys::cudnnHandle_t: CUDNN_TYPE_HANDLE,
);

/// A descriptor of the library, destroyed on drop.
struct Descriptor(Raw);

impl Descriptor {
    fn new(kind: Kind) -> Result<Self, String> {
        let mut made = std::ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        check(unsafe { sys::cudnnBackendCreateDescriptor(kind, &mut made) }, "describing a graph")?;
        Ok(Descriptor(Raw(made)))
    }

    fn set<V: Value>(&self, name: Name, values: &[V]) -> Result<(), String> {
        // SAFETY: the descriptor is alive; the values are read before the call returns and lie as their form says.
        let status = unsafe {
            sys::cudnnBackendSetAttribute(self.0.0, name, V::FORM, values.len() as i64, values.as_ptr().cast())
        };
        check(status, &format!("setting {name:?}"))
    }

    /// Fills `values` and says how many there are.
    fn get<V: Value>(&self, name: Name, values: &mut [V]) -> Result<usize, String> {
        let mut count = 0;
        // SAFETY: the descriptor is alive and finished; no more values are written than there is room for.
        let status = unsafe {
            let room = values.as_mut_ptr().cast();
            sys::cudnnBackendGetAttribute(self.0.0, name, V::FORM, values.len() as i64, &mut count, room)
        };
        check(status, &format!("reading {name:?}"))?;
        Ok(values.len().min(count as usize))
    }

    /// A number that the library knows of a finished descriptor.
    fn number(&self, name: Name) -> Result<i64, String> {
        let mut number = [0i64];
        self.get(name, &mut number)?;
        Ok(number[0])
    }

    /// Ends its description.
    fn finished(self, what: &str) -> Result<Self, String> {
        // SAFETY: the descriptor is alive.
        check(unsafe { sys::cudnnBackendFinalize(self.0.0) }, what).map(|()| self)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: created once, destroyed once.
        let _ = unsafe { sys::cudnnBackendDestroyDescriptor(self.0.0) };
    }
}

/// A tensor of a graph: its number there.
#[derive(Clone, Copy)]
pub(super) struct Tensor(usize);

/// Tensors of four axes, operations between them, and what both need to stay alive.
#[derive(Default)]
pub(super) struct Graph {
    tensors: Vec<Descriptor>,
    operations: Vec<Descriptor>,
    settings: Vec<Descriptor>,
    /// Tensors in device memory, in the order in which a run takes their addresses.
    buffers: Vec<i64>,
    /// Single numbers, by their bits.
    scalars: Vec<(i64, u32)>,
}

impl Graph {
    /// A tensor in device memory; a run takes the addresses of all of them in the order of these calls.
    pub fn buffer(&mut self, dtype: Type, extents: [usize; 4], strides: [usize; 4]) -> Result<Tensor, String> {
        let tensor = self.tensor(dtype, extents, strides, &[])?;
        self.buffers.push(uid(tensor));
        Ok(tensor)
    }

    /// A number in f32.
    pub fn float(&mut self, value: f32) -> Result<Tensor, String> {
        self.scalar(Type::CUDNN_DATA_FLOAT, value.to_bits())
    }

    /// A whole number.
    pub fn int(&mut self, value: i32) -> Result<Tensor, String> {
        self.scalar(Type::CUDNN_DATA_INT32, value as u32)
    }

    fn scalar(&mut self, dtype: Type, bits: u32) -> Result<Tensor, String> {
        let tensor = self.tensor(dtype, [1; 4], [1; 4], &[Name::CUDNN_ATTR_TENSOR_IS_BY_VALUE])?;
        self.scalars.push((uid(tensor), bits));
        Ok(tensor)
    }

    /// What one operation hands to the next, row-major.
    fn between(&mut self, dtype: Type, extents: [usize; 4]) -> Result<Tensor, String> {
        self.tensor(dtype, extents, row_major(extents), &[Name::CUDNN_ATTR_TENSOR_IS_VIRTUAL])
    }

    fn tensor(
        &mut self,
        dtype: Type,
        extents: [usize; 4],
        strides: [usize; 4],
        traits: &[Name],
    ) -> Result<Tensor, String> {
        let tensor = Tensor(self.tensors.len());
        let made = Descriptor::new(Kind::CUDNN_BACKEND_TENSOR_DESCRIPTOR)?;
        made.set(Name::CUDNN_ATTR_TENSOR_UNIQUE_ID, &[uid(tensor)])?;
        made.set(Name::CUDNN_ATTR_TENSOR_DATA_TYPE, &[dtype])?;
        made.set(Name::CUDNN_ATTR_TENSOR_DIMENSIONS, &extents.map(|extent| extent as i64))?;
        made.set(Name::CUDNN_ATTR_TENSOR_STRIDES, &strides.map(|stride| stride as i64))?;
        made.set(Name::CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, &[ALIGNMENT])?;
        traits.iter().try_for_each(|&name| made.set(name, &[true]))?;
        self.tensors.push(made.finished("describing a tensor")?);
        Ok(tensor)
    }

    fn raw(&self, tensor: Tensor) -> [Raw; 1] {
        [self.tensors[tensor.0].0]
    }

    /// c = a b, head by head, with sums in f32.
    pub fn matmul(&mut self, a: Tensor, b: Tensor, c: Tensor) -> Result<(), String> {
        let product = Descriptor::new(Kind::CUDNN_BACKEND_MATMUL_DESCRIPTOR)?;
        product.set(Name::CUDNN_ATTR_MATMUL_COMP_TYPE, &[Type::CUDNN_DATA_FLOAT])?;
        let product = product.finished("describing a product")?;
        let operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)?;
        operation.set(Name::CUDNN_ATTR_OPERATION_MATMUL_ADESC, &self.raw(a))?;
        operation.set(Name::CUDNN_ATTR_OPERATION_MATMUL_BDESC, &self.raw(b))?;
        operation.set(Name::CUDNN_ATTR_OPERATION_MATMUL_CDESC, &self.raw(c))?;
        operation.set(Name::CUDNN_ATTR_OPERATION_MATMUL_DESC, &[product.0])?;
        self.add(operation, product)
    }

    /// The same into a tensor that the next operation takes.
    pub fn product(&mut self, a: Tensor, b: Tensor, extents: [usize; 4]) -> Result<Tensor, String> {
        let c = self.between(Type::CUDNN_DATA_FLOAT, extents)?;
        self.matmul(a, b, c).map(|()| c)
    }

    /// Element by element: a function of one to three tensors, kept in `dtype`.
    pub fn pointwise(
        &mut self,
        mode: Pointwise,
        dtype: Type,
        inputs: &[Tensor],
        extents: [usize; 4],
    ) -> Result<Tensor, String> {
        let function = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
        function.set(Name::CUDNN_ATTR_POINTWISE_MODE, &[mode])?;
        function.set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[precision(dtype)])?;
        self.apply(function, dtype, inputs, extents)
    }

    /// The place of each element along an axis.
    pub fn places(&mut self, axis: usize, of: Tensor, extents: [usize; 4]) -> Result<Tensor, String> {
        let function = Descriptor::new(Kind::CUDNN_BACKEND_POINTWISE_DESCRIPTOR)?;
        function.set(Name::CUDNN_ATTR_POINTWISE_MODE, &[Pointwise::CUDNN_POINTWISE_GEN_INDEX])?;
        function.set(Name::CUDNN_ATTR_POINTWISE_MATH_PREC, &[Type::CUDNN_DATA_FLOAT])?;
        function.set(Name::CUDNN_ATTR_POINTWISE_AXIS, &[axis as i64])?;
        self.apply(function, Type::CUDNN_DATA_INT32, &[of], extents)
    }

    fn apply(
        &mut self,
        function: Descriptor,
        dtype: Type,
        inputs: &[Tensor],
        extents: [usize; 4],
    ) -> Result<Tensor, String> {
        const INPUTS: [Name; 3] = [
            Name::CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
            Name::CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
            Name::CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
        ];
        let function = function.finished("describing a function")?;
        let y = self.between(dtype, extents)?;
        let operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)?;
        operation.set(Name::CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, &[function.0])?;
        for (name, &input) in INPUTS.into_iter().zip(inputs) {
            operation.set(name, &self.raw(input))?;
        }
        operation.set(Name::CUDNN_ATTR_OPERATION_POINTWISE_YDESC, &self.raw(y))?;
        self.add(operation, function).map(|()| y)
    }

    /// What `how` makes of the last axis, in f32.
    pub fn reduce(&mut self, how: Reduction, x: Tensor, extents: [usize; 4]) -> Result<Tensor, String> {
        let reduction = Descriptor::new(Kind::CUDNN_BACKEND_REDUCTION_DESCRIPTOR)?;
        reduction.set(Name::CUDNN_ATTR_REDUCTION_OPERATOR, &[how])?;
        reduction.set(Name::CUDNN_ATTR_REDUCTION_COMP_TYPE, &[Type::CUDNN_DATA_FLOAT])?;
        let reduction = reduction.finished("describing a reduction")?;
        let y = self.between(Type::CUDNN_DATA_FLOAT, extents)?;
        let operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)?;
        operation.set(Name::CUDNN_ATTR_OPERATION_REDUCTION_DESC, &[reduction.0])?;
        operation.set(Name::CUDNN_ATTR_OPERATION_REDUCTION_XDESC, &self.raw(x))?;
        operation.set(Name::CUDNN_ATTR_OPERATION_REDUCTION_YDESC, &self.raw(y))?;
        self.add(operation, reduction).map(|()| y)
    }

    /// y = softmax(q kᵀ scale) v as one operation, every query with every key.
    pub fn attention(&mut self, [q, k, v]: [Tensor; 3], scale: Tensor, y: Tensor) -> Result<(), String> {
        let operation = Descriptor::new(Kind::CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR)?;
        operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, &self.raw(q))?;
        operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, &self.raw(k))?;
        operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, &self.raw(v))?;
        operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, &self.raw(scale))?;
        operation.set(Name::CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, &self.raw(y))?;
        self.operations.push(operation.finished("describing an attention")?);
        Ok(())
    }

    fn add(&mut self, operation: Descriptor, setting: Descriptor) -> Result<(), String> {
        self.operations.push(operation.finished("describing an operation")?);
        self.settings.push(setting);
        Ok(())
    }

    /// The first of the plans that the library proposes that can be made here and needs no more scratch space than this:
    /// later ones are not as well tried.
    ///
    /// # Errors
    /// Why there is none.
    pub fn plan(self, handle: &Handle, workspace_bytes: usize) -> Result<Plan, String> {
        let whole = Descriptor::new(Kind::CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)?;
        whole.set(Name::CUDNN_ATTR_OPERATIONGRAPH_HANDLE, &[handle.0])?;
        let operations: Vec<Raw> = self.operations.iter().map(|operation| operation.0).collect();
        whole.set(Name::CUDNN_ATTR_OPERATIONGRAPH_OPS, &operations)?;
        let whole = whole.finished("putting a graph together")?;

        let heuristics = Descriptor::new(Kind::CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)?;
        heuristics.set(Name::CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, &[whole.0])?;
        heuristics.set(Name::CUDNN_ATTR_ENGINEHEUR_MODE, &[Heuristics::CUDNN_HEUR_MODE_A])?;
        let heuristics = heuristics.finished("looking for engines")?;
        let proposals = (0..MOST_PLANS).map(|_| Descriptor::new(Kind::CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
        let mut proposals = proposals.collect::<Result<Vec<_>, _>>()?;
        let mut raw: Vec<Raw> = proposals.iter().map(|proposal| proposal.0).collect();
        proposals.truncate(heuristics.get(Name::CUDNN_ATTR_ENGINEHEUR_RESULTS, &mut raw)?);

        let mut refusal = "cuDNN has no engine for this".to_owned();
        for proposal in proposals {
            match Made::of(&proposal, handle) {
                Ok(made) if made.workspace_bytes <= workspace_bytes => {
                    return Ok(Plan { made, _proposal: proposal, _whole: whole, graph: self });
                }
                Ok(made) => refusal = format!("cuDNN wants {} bytes of scratch space", made.workspace_bytes),
                Err(error) => refusal = error,
            }
        }
        Err(refusal)
    }
}

/// The library's number of a tensor.
fn uid(tensor: Tensor) -> i64 {
    tensor.0 as i64 + 1
}

/// What elements of a type are computed in.
fn precision(dtype: Type) -> Type {
    match dtype {
        Type::CUDNN_DATA_HALF | Type::CUDNN_DATA_BFLOAT16 => Type::CUDNN_DATA_FLOAT,
        other => other,
    }
}

/// Strides of a tensor without gaps.
pub(super) fn row_major([_, b, c, d]: [usize; 4]) -> [usize; 4] {
    [b * c * d, c * d, d, 1]
}

/// A plan, with the graph that it carries out.
pub(super) struct Plan {
    made: Made,
    _proposal: Descriptor,
    _whole: Descriptor,
    graph: Graph,
}

/// What becomes of a proposal.
struct Made {
    plan: Descriptor,
    engine: i64,
    workspace_bytes: usize,
}

impl Made {
    fn of(proposal: &Descriptor, handle: &Handle) -> Result<Self, String> {
        let engine = Descriptor::new(Kind::CUDNN_BACKEND_ENGINE_DESCRIPTOR)?;
        proposal.get(Name::CUDNN_ATTR_ENGINECFG_ENGINE, &mut [engine.0])?;
        let mut notes = [Note(-1); 32];
        let known = engine.get(Name::CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, &mut notes)?;
        if notes[..known].iter().any(|note| LOSSY.contains(note)) {
            return Err("cuDNN's engines for this add in the narrow type".into());
        }
        let plan = Descriptor::new(Kind::CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)?;
        plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_HANDLE, &[handle.0])?;
        plan.set(Name::CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, &[proposal.0])?;
        let plan = plan.finished("making a plan")?;
        let workspace_bytes = plan.number(Name::CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)? as usize;
        Ok(Made { engine: engine.number(Name::CUDNN_ATTR_ENGINE_GLOBAL_INDEX)?, workspace_bytes, plan })
    }
}

// SAFETY: a finished plan and its graph are only read, by runs that hold the handle's lock.
unsafe impl Send for Plan {}
// SAFETY: as above.
unsafe impl Sync for Plan {}

impl Plan {
    /// The engine, by the library's number.
    pub fn engine(&self) -> i64 {
        self.made.engine
    }

    /// How many operations the graph has.
    pub fn operations(&self) -> usize {
        self.graph.operations.len()
    }

    /// Enqueues the graph on the handle's stream, with its tensors at these device addresses.
    ///
    /// # Errors
    /// What the library said.
    pub fn run(&self, handle: &Handle, buffers: &[u64], workspace: u64) -> Result<(), String> {
        let graph = &self.graph;
        assert_eq!(buffers.len(), graph.buffers.len(), "an address for each tensor in device memory");
        let device = |address: u64| Address(address as *mut c_void);
        let uids: Vec<i64> = graph.buffers.iter().copied().chain(graph.scalars.iter().map(|(uid, _)| *uid)).collect();
        let scalars = graph.scalars.iter().map(|(_, bits)| Address((&raw const *bits).cast_mut().cast()));
        let addresses: Vec<Address> = buffers.iter().map(|&address| device(address)).chain(scalars).collect();
        let arguments = Descriptor::new(Kind::CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)?;
        arguments.set(Name::CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, &uids)?;
        arguments.set(Name::CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, &addresses)?;
        arguments.set(Name::CUDNN_ATTR_VARIANT_PACK_WORKSPACE, &[device(workspace)])?;
        let arguments = arguments.finished("naming the tensors of a run")?;
        // SAFETY: plan and arguments are finished; the buffers have the extents that the graph describes, and the
        // scalars live as long as the graph and are only read.
        let status = unsafe { sys::cudnnBackendExecute(handle.0, self.made.plan.0.0, arguments.0.0) };
        check(status, "running a plan")
    }
}
