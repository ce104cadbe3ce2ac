//! What `cp.reduce` makes of each element in global memory.

use crate::sim::error::Result;
use crate::sim::ir::emitter::Emitter;
use crate::sim::isa::atomic::change;
use crate::sim::machine::reduction::Reduction;
use crate::sim::machine::tensor_map::Element;
use crate::sim::ptx::opcode::Opcode;
use crate::sim::ptx::types::Type;

const NAMES: [&str; 8] = ["add", "min", "max", "and", "or", "xor", "inc", "dec"];

/// An operation as the opcode names it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Operation {
    name: &'static str,
    /// `None` where a tensor map says it.
    ty: Option<Type>,
}

impl Operation {
    pub fn emit(emitter: &mut Emitter<'_>, op: &mut Opcode<'_>, tensor: bool) -> Result<Self> {
        if !tensor {
            op.take("noftz");
        }
        let name = op.take_map(|modifier| NAMES.into_iter().find(|name| *name == modifier));
        let name = name.ok_or_else(|| op.unsupported())?;
        if tensor != op.types.is_empty() {
            return Err(op.unsupported());
        }
        let ty = op.types.first().copied();
        if ty.is_some_and(|ty| change(name, ty).is_none()) {
            return Err(op.unsupported());
        }
        // Sums of floats depend on the order of blocks, and wide ones need it.
        emitter.traits.in_order = true;
        Ok(Operation { name, ty })
    }

    /// What becomes of elements; those of a tensor map are told apart when a copy is issued.
    ///
    /// # Errors
    /// A message where no device has this operation on them.
    pub fn on(self, element: Option<Element>) -> std::result::Result<Reduction, String> {
        let ty = self.ty.or(element.map(Element::ty)).unwrap_or(Type::B8);
        let typed = |name: &str| change(name, if is_bitwise(name) { bits(ty) } else { ty });
        if let Some(change) = typed(self.name) {
            return Ok(Reduction { change, element_bytes: ty.bytes() });
        }
        let others: Vec<&str> = NAMES.into_iter().filter(|name| typed(name).is_some()).collect();
        let advice = if others.is_empty() {
            "no reduction takes these: encode the tensor map with another type".to_owned()
        } else {
            format!("these take {}: use one of them, or encode the tensor map with another type", others.join(", "))
        };
        Err(format!("a reduction by `{}` into a tensor of {ty} elements; {advice}", self.name))
    }
}

fn is_bitwise(name: &str) -> bool {
    matches!(name, "and" | "or" | "xor")
}

/// Bitwise operations know integers by their size alone; other types stay what they are, and are none of theirs.
fn bits(ty: Type) -> Type {
    match ty {
        Type::U32 | Type::S32 => Type::B32,
        Type::U64 | Type::S64 => Type::B64,
        _ => ty,
    }
}
