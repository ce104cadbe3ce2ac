//! References: computed in parallel, kept by the content of the case, shared by all candidates of an operator, and with
//! other processes where they cost more to compute than to read.

mod store;

use super::compare::{Expected, UNSPECIFIED};
use super::slice::{rows_of_output, slice};
use crate::core::dtype::DType;
use crate::core::operator::Operator;
use crate::core::tensor::Tensor;
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use store::Store;

/// Kept references may hold this many values; past that the cache starts afresh.
const MOST_VALUES: usize = 1 << 26;

/// Below this many operations a reference is not worth splitting.
const SPLIT_FLOPS: usize = 1 << 20;

type Key = [u8; 32];

#[derive(Default)]
struct Cache {
    values: usize,
    entries: HashMap<Key, Arc<Vec<Expected>>>,
}

static CACHE: Mutex<Option<Cache>> = Mutex::new(None);

/// Where references are kept for other processes, in a gate.
static STORE: OnceLock<Store> = OnceLock::new();

/// Reading is worth it from here on: several times what opening a file and checking its hash cost.
const WORTH_KEEPING: Duration = Duration::from_millis(5);
const READ_BYTES_PER_S: f64 = 2e8;

/// Keeps references in `folder` from now on, for the life of the process. Only for a process that defines its operators
/// in the same order whenever it runs, since that is what tells two definitions of one name apart.
pub fn keep_in(folder: PathBuf) {
    STORE.get_or_init(|| Store::new(folder, store::MOST_BYTES));
}

/// The expected outputs of a case, from the cache if these very inputs were seen before.
pub fn expected(operator: &dyn Operator, point: &[usize], dtype: DType, inputs: &[Tensor]) -> Arc<Vec<Expected>> {
    let key = key(operator, point, dtype, inputs);
    if let Some(found) = with_cache(|cache| cache.entries.get(&key).cloned()) {
        return found;
    }
    let computed = Arc::new(stored(operator, point, dtype, inputs, &key, STORE.get()));
    with_cache(|cache| {
        let values = computed.iter().map(|e| e.values.len() * 2).sum::<usize>();
        if cache.values + values > MOST_VALUES {
            *cache = Cache::default();
        }
        if values <= MOST_VALUES && cache.entries.insert(key, Arc::clone(&computed)).is_none() {
            cache.values += values;
        }
    });
    computed
}

/// From the store, or computed and put there if that took longer than reading will.
fn stored(
    operator: &dyn Operator,
    point: &[usize],
    dtype: DType,
    inputs: &[Tensor],
    key: &Key,
    store: Option<&Store>,
) -> Vec<Expected> {
    // An entry has no room for other values than the reference's.
    let store = store.filter(|_| !operator.has_alternatives());
    let Some((store, executable)) = store.and_then(|store| Some((store, store::executable()?))) else {
        return compute(operator, point, dtype, inputs);
    };
    let key = Sha256::new().chain_update(executable).chain_update(key).chain_update(operator.name()).finalize().into();
    if let Some(found) = store.read(&key).filter(|found| has_the_extents(found, operator, point)) {
        return found;
    }
    let begun = Instant::now();
    let computed = compute(operator, point, dtype, inputs);
    let bytes = computed.iter().map(|e| 16 * e.values.len()).sum::<usize>();
    if begun.elapsed() > WORTH_KEEPING + Duration::from_secs_f64(bytes as f64 / READ_BYTES_PER_S) {
        store.write(&key, &computed);
    }
    computed
}

fn has_the_extents(found: &[Expected], operator: &dyn Operator, point: &[usize]) -> bool {
    let lengths = (0..operator.outputs().len()).map(|i| operator.output_dims(i, point).iter().product::<usize>());
    found.iter().map(|expected| expected.values.len()).eq(lengths)
}

fn with_cache<R>(f: impl FnOnce(&mut Cache) -> R) -> R {
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    f(cache.get_or_insert_with(Cache::default))
}

fn key(operator: &dyn Operator, point: &[usize], dtype: DType, inputs: &[Tensor]) -> Key {
    let mut hash = Sha256::new();
    hash.update(operator.identity().to_le_bytes());
    hash.update(dtype.name());
    for extent in point {
        hash.update((*extent as u64).to_le_bytes());
    }
    for input in inputs {
        hash.update(input.bytes());
    }
    hash.finalize().into()
}

/// Computes without the cache: whole, or slice by slice where the operator allows it and it pays.
pub fn compute(operator: &dyn Operator, point: &[usize], dtype: DType, inputs: &[Tensor]) -> Vec<Expected> {
    let threads = rayon::current_num_threads();
    match operator.separable() {
        Some(axis) if threads > 1 && point[axis] >= 2 && operator.cost(point, DType::F32).flops >= SPLIT_FLOPS => {
            let rows: Vec<usize> = (0..point[axis]).collect();
            let parts: Vec<Vec<Expected>> = rows
                .par_chunks(rows.len().div_ceil(4 * threads))
                .map(|rows| {
                    let cut = slice(operator, axis, point, inputs, rows);
                    whole(operator, &cut.point, dtype, &cut.inputs)
                })
                .collect();
            concatenate(operator, point, axis, &parts)
        }
        _ => whole(operator, point, dtype, inputs),
    }
}

fn whole(operator: &dyn Operator, point: &[usize], dtype: DType, inputs: &[Tensor]) -> Vec<Expected> {
    let inputs: Vec<Vec<f64>> = inputs.iter().map(Tensor::to_f64).collect();
    let inputs: Vec<&[f64]> = inputs.iter().map(Vec::as_slice).collect();
    let mut values: Vec<Vec<f64>> =
        (0..operator.outputs().len()).map(|i| vec![0.0; operator.output_dims(i, point).iter().product()]).collect();
    operator.reference(point, dtype, &inputs, &mut values);
    let mut magnitudes = values.clone();
    operator.magnitude(point, &inputs, &mut magnitudes);
    if operator.has_unspecified() {
        let mut free: Vec<Vec<bool>> = values.iter().map(|values| vec![false; values.len()]).collect();
        operator.unspecified(point, &inputs, &mut free);
        let marked = magnitudes.iter_mut().flatten().zip(free.iter().flatten());
        marked.filter(|(_, free)| **free).for_each(|(magnitude, _)| *magnitude = UNSPECIFIED);
    }
    let mut others: Vec<Vec<(usize, f64)>> = vec![Vec::new(); values.len()];
    operator.alternatives(point, &inputs, &mut others);
    let of_outputs = values.into_iter().zip(magnitudes).zip(others);
    of_outputs.map(|((values, magnitudes), others)| Expected { values, magnitudes, others }).collect()
}

/// Puts together what was computed of some rows each, along the dimension of every output that has the rows.
fn concatenate(operator: &dyn Operator, point: &[usize], axis: usize, parts: &[Vec<Expected>]) -> Vec<Expected> {
    let outputs = (0..operator.outputs().len()).map(|i| {
        let dims = operator.output_dims(i, point);
        let outer: usize = dims[..rows_of_output(operator, i, point, axis)].iter().product();
        let join = |pick: fn(&Expected) -> &Vec<f64>| -> Vec<f64> {
            let of_part = |part: &Vec<Expected>, at: usize| {
                let all = pick(&part[i]);
                let width = all.len() / outer.max(1);
                all[at * width..][..width].to_vec()
            };
            (0..outer).flat_map(|at| parts.iter().flat_map(move |part| of_part(part, at))).collect()
        };
        let widths: Vec<usize> = parts.iter().map(|part| part[i].values.len() / outer.max(1)).collect();
        let width: usize = widths.iter().sum();
        let others = parts.iter().enumerate().flat_map(|(number, part)| {
            let (before, own) = (widths[..number].iter().sum::<usize>(), widths[number]);
            part[i].others.iter().map(move |&(at, value)| (at / own * width + before + at % own, value))
        });
        Expected { values: join(|e| &e.values), magnitudes: join(|e| &e.magnitudes), others: others.collect() }
    });
    outputs.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::cost::Cost;
    use crate::core::operator::Op;

    crate::shape! { struct Rows { rows: 1..=1 << 20, cols: 1..=64 } }

    fn row_sums(flops: usize) -> Op<Rows> {
        Op::<Rows>::new("row_sums")
            .input("x", |s| [s.rows, s.cols])
            .output("y", |s| [s.rows])
            .separable("rows")
            .cost(move |_, _| Cost { bytes: 0, flops })
            .reference(|s, x, y| {
                for (y, row) in y[0].iter_mut().zip(x[0].chunks(s.cols)) {
                    *y = row.iter().sum();
                }
            })
    }

    #[test]
    fn slices_make_the_whole() {
        let point = [1001, 3];
        let values: Vec<f64> = (0..3003).map(f64::from).collect();
        let inputs = [Tensor::from_f64(DType::F32, &point, &values)];
        let split = compute(&row_sums(SPLIT_FLOPS), &point, DType::F32, &inputs);
        assert_eq!(split, compute(&row_sums(0), &point, DType::F32, &inputs));
        assert_eq!(split[0].values[1000], 3000.0 + 3001.0 + 3002.0);
    }

    #[test]
    fn slices_along_an_inner_dimension_make_the_whole() {
        let op = |flops| {
            Op::<Rows>::new("transposed")
                .input("x", |s| [s.cols, s.rows])
                .output("y", |s| [s.cols, s.rows, 1])
                .separable("rows")
                .cost(move |_, _| Cost { bytes: 0, flops })
                .reference(|_, x, y| y[0].iter_mut().zip(x[0]).for_each(|(y, x)| *y = 2.0 * x))
        };
        let values: Vec<f64> = (0..3003).map(f64::from).collect();
        let inputs = [Tensor::from_f64(DType::F32, &[3, 1001], &values)];
        let of = |flops| compute(&op(flops), &[1001, 3], DType::F32, &inputs);
        assert_eq!(of(SPLIT_FLOPS), of(0));
    }

    #[test]
    fn a_costly_reference_is_read_by_the_next_process_unless_it_is_damaged() {
        use std::sync::atomic::{AtomicUsize, Ordering};
        let times = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&times);
        let slow = row_sums(0).reference(move |_, x, y| {
            counted.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(10 * WORTH_KEEPING);
            y[0][0] = x[0][0];
        });
        let folder = tempfile::tempdir().unwrap();
        let inputs = [Tensor::from_f64(DType::F32, &[1, 1], &[2.0])];
        let in_a_new_process = || {
            let store = Store::new(folder.path().to_owned(), store::MOST_BYTES);
            let found = stored(&slow, &[1, 1], DType::F32, &inputs, &[7; 32], Some(&store));
            (found[0].values[0], times.load(Ordering::Relaxed))
        };
        assert_eq!(in_a_new_process(), (2.0, 1));
        assert_eq!(in_a_new_process(), (2.0, 1), "read");
        for entry in std::fs::read_dir(folder.path()).unwrap() {
            let path = entry.unwrap().path();
            let mut bytes = std::fs::read(&path).unwrap();
            *bytes.last_mut().unwrap() ^= 1;
            std::fs::write(&path, bytes).unwrap();
        }
        assert_eq!(in_a_new_process(), (2.0, 2), "computed again");
        assert_eq!(in_a_new_process(), (2.0, 2), "and kept again");
    }

    #[test]
    fn another_definition_is_another_entry() {
        let inputs = [Tensor::from_f64(DType::F32, &[1, 1], &[2.0])];
        let one = row_sums(0);
        let other = row_sums(0).reference(|_, x, y| y[0][0] = -x[0][0]);
        assert_eq!(expected(&one, &[1, 1], DType::F32, &inputs)[0].values, [2.0]);
        assert_eq!(expected(&other, &[1, 1], DType::F32, &inputs)[0].values, [-2.0]);
    }
}
