//! A recurrent layer by matrix products: the inputs of all steps at once, then a product a step with the state.

use super::convert::convert;
use super::elementwise::{exp, tanh};
use super::gemm::gemm;
use super::lane::Lane;
use super::level::Level;
use super::transpose::transposed;

const GATES: usize = 4;

/// The extents of a layer.
pub struct LayerExtents {
    /// Sequences beside each other.
    pub batch: usize,
    /// Elements that the layer reads a step and sequence.
    pub width: usize,
    /// Elements of a state.
    pub hidden: usize,
}

/// One layer over all steps: states `h` of every step from inputs `x`, with cells `c`, which begin as given and end as
/// the last step leaves them. `w`, `r` and `bias` have the rows of the gates i, f, g, o, `hidden` each.
///
/// # Panics
/// If a slice does not have the length that the extents and a whole number of steps give it.
pub fn lstm_layer<T: Lane>(
    s: &LayerExtents,
    x: &[f32],
    (w, r, bias): (&[T], &[T], &[T]),
    h: &mut [f32],
    c: &mut [f32],
) {
    let (rows, cells) = (GATES * s.hidden, s.batch * s.hidden);
    assert_eq!(w.len(), rows * s.width, "w does not hold the gates' rows");
    assert_eq!(r.len(), rows * s.hidden, "r does not hold the gates' rows");
    assert_eq!(bias.len(), rows, "bias does not hold the gates' rows");
    assert_eq!(c.len(), cells, "c does not hold the cells");
    if cells == 0 {
        return;
    }
    let steps = h.len() / cells;
    assert_eq!(h.len(), steps * cells, "h does not hold whole steps");
    assert_eq!(x.len(), steps * s.batch * s.width, "x does not have the steps of h");
    let (w, r) = (transposed(w, s.width), transposed(r, s.hidden));
    let mut of_bias = vec![0.0; rows];
    convert(Level::best(), bias, &mut of_bias);
    let mut of_inputs = vec![0.0; steps * s.batch * rows];
    gemm(steps * s.batch, rows, s.width, x, &w, &mut of_inputs);
    let (mut of_state, mut activated) = (vec![0.0; s.batch * rows], vec![0.0; s.batch * rows]);
    let mut before = vec![0.0; cells];
    for (gates, h) in of_inputs.chunks_exact_mut(s.batch * rows).zip(h.chunks_exact_mut(cells)) {
        gemm(s.batch, rows, s.hidden, &before, &r, &mut of_state);
        for (gates, of_state) in gates.chunks_exact_mut(rows).zip(of_state.chunks_exact(rows)) {
            let terms = of_state.iter().zip(&of_bias);
            for (row, (gate, (state, bias))) in gates.iter_mut().zip(terms).enumerate() {
                let sum = *gate + state + bias;
                *gate = if row / s.hidden == CANDIDATE { sum } else { -sum };
            }
        }
        for (gates, activated) in gates.chunks_exact(rows).zip(activated.chunks_exact_mut(rows)) {
            let tangents = CANDIDATE * s.hidden..(CANDIDATE + 1) * s.hidden;
            exp(gates, activated);
            tanh(&gates[tangents.clone()], &mut activated[tangents]);
        }
        for (gates, c) in activated.chunks_exact(rows).zip(c.chunks_exact_mut(s.hidden)) {
            for (unit, c) in c.iter_mut().enumerate() {
                let [i, f] = [0, 1].map(|gate| sigmoid(gates[gate * s.hidden + unit]));
                *c = f * *c + i * gates[CANDIDATE * s.hidden + unit];
            }
        }
        tanh(c, h);
        for (gates, h) in activated.chunks_exact(rows).zip(h.chunks_exact_mut(s.hidden)) {
            h.iter_mut().zip(&gates[3 * s.hidden..]).for_each(|(h, &o)| *h *= sigmoid(o));
        }
        before.copy_from_slice(h);
    }
}

/// The gate g, the only one that is a tanh.
const CANDIDATE: usize = 2;

/// σ(p) from the exponential of -p.
fn sigmoid(exponential: f32) -> f32 {
    1.0 / (1.0 + exponential)
}
