//! How `tiles.json` is made: what is timed, and the times of tiles that explain it best.

use super::tile::{Tile, tiles};
use super::times::{Table, Times};
use super::wgmma::{GEMM, Operation};
use super::{Product, operator, wgmma_kernel};
use crate::core::gpu::multiprocessors;
use crate::core::shape::{Point, Shape};
use crate::core::suite::Suite;
use crate::ops::family::aligned::ELEMENT_BYTES;
use serde::{Deserialize, Serialize};

/// The vendor's product, which is timed beside the tiles.
pub const VENDOR: &str = "cublaslt";

/// An operator that is such a product, for timing its tiles.
pub struct Tuned {
    /// Its tiles.
    pub tiles: Vec<&'static Tile>,
    /// A candidate a tile, each of which takes its tile whatever the shape, and the vendor's.
    pub suite: Suite,
    /// The launch rule of a shape, and what it multiplies.
    pub problem: fn(&[usize]) -> (Operation, Product),
    /// The extents of a shape that say what is multiplied: the first ones.
    pub extents: usize,
    /// The shape with these.
    pub point: fn(&[usize]) -> Point,
    /// The shapes to time tiles at.
    pub listed: Vec<Point>,
}

/// gemm itself.
pub fn tuned() -> Tuned {
    let suite = Suite::of(operator());
    let own = tiles().fold(suite, |suite, tile| suite.candidate(tile.name, wgmma_kernel(move |_| tile)));
    Tuned {
        tiles: tiles().collect(),
        suite: with_vendor!(own, "cublaslt", super::vendor::cublaslt),
        problem: |point| (GEMM, Product::from_point(point)),
        extents: 3,
        point: <[usize]>::to_vec,
        listed: points(),
    }
}

impl Tuned {
    /// The tile that is chosen for a product.
    pub fn chosen(&self, point: &[usize]) -> &'static str {
        let (operation, product) = (self.problem)(point);
        operation.choose(&product, false).name
    }

    /// Whether a candidate of the suite is worth timing at a product.
    pub fn suits(&self, candidate: &str, point: &[usize]) -> bool {
        let (operation, product) = (self.problem)(point);
        let tile = self.tiles.iter().find(|tile| tile.name == candidate);
        tile.is_none_or(|tile| operation.suits(tile, &product) && operation.has(tile))
    }
}

/// As (m, n, k): few rows over weights of models, squares, rows that straddle lines, long sums, few columns. No larger than
/// what runs at full clocks: beyond, all tiles slow down alike.
const SHAPES: [(usize, usize, usize); 40] = [
    (1, 4096, 4096),
    (8, 4096, 14336),
    (16, 4096, 4096),
    (16, 14336, 4096),
    (4, 32000, 4096),
    (32, 11008, 4096),
    (32, 4096, 11008),
    (64, 8192, 8192),
    (64, 4096, 14336),
    (64, 28672, 4096),
    (100, 2000, 3000),
    (128, 4096, 4096),
    (128, 11008, 4096),
    (256, 4096, 4096),
    (256, 256, 16384),
    (64, 64, 65536),
    (512, 512, 16384),
    (512, 512, 512),
    (1000, 1000, 1000),
    (1024, 1024, 1024),
    (1536, 1536, 1536),
    (512, 5632, 2048),
    (2048, 2048, 2048),
    (4096, 256, 4096),
    (16384, 128, 1024),
    (8192, 1024, 1024),
    // Rows that start anywhere.
    (1, 5001, 8192),
    (8, 2476, 4096),
    (9, 4006, 11200),
    (13, 72, 115),
    (16, 9756, 64),
    (16, 1536, 2476),
    (40, 1000, 3001),
    (64, 257, 4096),
    (64, 4383, 8481),
    (160, 6866, 64),
    (96, 1522, 8866),
    (128, 5656, 10125),
    // Rows that straddle lines.
    (168, 7736, 8168),
    (600, 10160, 1800),
];

/// The shapes to time tiles at.
pub fn points() -> Vec<Point> {
    SHAPES.map(|(m, n, k)| Product { m, n, k }.to_point()).to_vec()
}

/// A time of a tile, µs.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Timed {
    /// The tile, or [`VENDOR`].
    pub tile: String,
    /// The product: m, n and k.
    pub point: Point,
    /// The median, µs.
    pub us: f64,
}

/// The table that explains the times of these operators best.
pub fn table(device: &str, timed: &[(&Tuned, &[Timed])]) -> Table {
    let rows_of = |tile: &Tile| -> Vec<Row> {
        let of_one = |&(tuned, timed): &(&Tuned, &[Timed])| -> Vec<Row> {
            let fastest = |point: &Point| {
                let own = timed.iter().filter(|t| t.point == *point && t.tile != VENDOR);
                own.map(|t| t.us).fold(f64::INFINITY, f64::min)
            };
            let of_tile = timed.iter().filter(|timed| timed.tile == tile.name);
            let row = |timed: &Timed| {
                let (operation, shape) = (tuned.problem)(&timed.point);
                Row { operation, shape, us: timed.us, fastest_us: fastest(&timed.point) }
            };
            of_tile.map(row).collect()
        };
        timed.iter().flat_map(of_one).collect()
    };
    let all = timed.iter().flat_map(|(tuned, _)| tuned.tiles.iter().copied());
    let fitted = all.filter_map(|tile| {
        let rows = rows_of(tile);
        (!rows.is_empty()).then(|| (tile.name.to_owned(), fit(tile, &rows)))
    });
    Table { device: device.into(), tiles: fitted.collect() }
}

struct Row {
    operation: Operation,
    shape: Product,
    us: f64,
    /// Of all tiles.
    fastest_us: f64,
}

impl Row {
    /// The error of an estimate. Tiles that are near the fastest count most, and those that are estimated to be: what is neither is not
    /// chosen. Between squares and absolute errors, since blocks that run out of step now and then take a fifth longer.
    fn error(&self, estimate_us: f64) -> f64 {
        let near = (self.fastest_us / self.us.min(estimate_us)).min(1.0);
        near.powi(12).max(0.02) * (estimate_us / self.us).ln().abs().powf(1.4)
    }
}

/// What the tensor cores of a multiprocessor compute in a slice at the best: no tile of any size has reached more.
const FLOPS_PER_US: f64 = 7.0e6;

/// Bytes that all multiprocessors together store: persistent blocks do so at the same time, three quarters of it beside the next tile's
/// copies at the least.
const STORED_BYTES_PER_US: f64 = 4.1e6 / 0.75;

/// The times with the least errors: from the best of a grid downhill, in smaller and smaller steps.
fn fit(tile: &Tile, rows: &[Row]) -> Times {
    // Blocks of a multiprocessor share its tensor cores and its way to memory.
    let together = if tile.is_persistent() { tile.on_a_multiprocessor(usize::MAX) } else { 1 };
    let least_us = tile.flops_of_slice() * together as f64 / FLOPS_PER_US;
    let blocks = if tile.is_persistent() { together * multiprocessors() } else { 0 };
    let least_further_us = (tile.rows * tile.cols * ELEMENT_BYTES * blocks) as f64 / STORED_BYTES_PER_US;
    let times_of = |&[base_us, slice_us, further_us, terabytes_per_s, by_elements_us]: &[f64; 5]| Times {
        base_us,
        slice_us,
        further_us,
        terabytes_per_s,
        by_elements_us,
    };
    let error = |at: &[f64; 5]| -> f64 {
        let times = times_of(at);
        if times.slice_us < least_us || times.further_us < least_further_us {
            return f64::INFINITY;
        }
        let of_row = |row: &Row| row.error(row.operation.estimate_us(tile, &times, &row.shape));
        rows.iter().map(of_row).sum()
    };
    let grid = [2.5, 3.5, 4.5, 6.0].into_iter().flat_map(|base| {
        [0.08, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 0.9, 1.4].into_iter().flat_map(move |slice| {
            [0.25, 1.0, 2.0, 4.0].into_iter().flat_map(move |further| {
                [1.1, 2.5, 3.3, 4.1]
                    .into_iter()
                    .flat_map(move |read| [0.1, 0.5, 1.5].map(|by_elements| [base, slice, further, read, by_elements]))
            })
        })
    });
    let mut best = grid.min_by(|a, b| error(a).total_cmp(&error(b))).unwrap_or([3.0, 0.3, 1.0, 3.3, 0.5]);
    for step in [1.3, 1.1, 1.03, 1.01] {
        loop {
            let moved = (0..best.len()).flat_map(|i| {
                [step, 1.0 / step].map(|factor| {
                    let mut moved = best;
                    moved[i] *= factor;
                    moved
                })
            });
            let Some(next) = moved.min_by(|a, b| error(a).total_cmp(&error(b))) else { break };
            if error(&next) >= error(&best) {
                break;
            }
            best = next;
        }
    }
    times_of(&best.map(|value| (value * 1000.0).round() / 1000.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::gemm::times;

    #[test]
    fn times_are_found_again() {
        let points: Vec<(&Tile, Point)> =
            tiles().flat_map(|tile| points().into_iter().map(move |point| (tile, point))).collect();
        let points: Vec<_> = points.into_iter().filter(|(tile, point)| tuned().suits(tile.name, point)).collect();
        let us = |tile: &Tile, times: &Times, point: &Point| GEMM.estimate_us(tile, times, &Product::from_point(point));
        let timed: Vec<Timed> = points
            .iter()
            .map(|(tile, point)| {
                let us = us(tile, times::of(tile.name, false).expect("a measured tile"), point);
                Timed { tile: tile.name.into(), point: point.clone(), us }
            })
            .collect();
        let table = table("a device", &[(&tuned(), &timed)]);
        let fastest =
            |point: &Point| timed.iter().filter(|t| t.point == *point).map(|t| t.us).fold(f64::INFINITY, f64::min);
        for timed in &timed {
            let tile = tiles().find(|tile| tile.name == timed.tile).expect("a tile");
            let again = us(tile, &table.tiles[&timed.tile], &timed.point);
            // What is far from the fastest hardly counts, and is not chosen.
            let allowed = if timed.us < 1.25 * fastest(&timed.point) { 0.1 } else { 0.4 };
            let off = (again / timed.us - 1.0).abs();
            assert!(off < allowed, "{} {:?}: {again} for {}", tile.name, timed.point, timed.us);
        }
    }

    #[test]
    fn every_tile_has_shapes() {
        let of = |tile: &Tile| points().iter().filter(|point| tuned().suits(tile.name, point)).count();
        assert!(tiles().all(|tile| of(tile) >= 4));
    }
}
