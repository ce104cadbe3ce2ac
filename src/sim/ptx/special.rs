//! The special registers that a kernel can read.

/// A special register of 32 bits unless said otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Clusterid(u8),
    Nclusterid(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtarank,
    ClusterNctarank,
    IsExplicitCluster,
    Laneid,
    Warpid,
    Nwarpid,
    /// Bits of lanes relative to the reading one: equal, lower, lower or equal, greater, greater or equal.
    LanemaskEq,
    LanemaskLt,
    LanemaskLe,
    LanemaskGt,
    LanemaskGe,
    Smid,
    Nsmid,
    /// 64 bits.
    Gridid,
    /// What the driver tells a kernel; 1 and 2 are the workspace of a grid that synchronises.
    Envreg(u8),
    DynamicSmemSize,
    TotalSmemSize,
    /// Counts warp instructions of the block, since the simulator has no time.
    Clock,
    ClockHi,
    /// 64 bits.
    Clock64,
    /// 64 bits.
    Globaltimer,
}

impl Special {
    /// The register of that name, with its `%`.
    pub(crate) fn from_name(name: &str) -> Option<Special> {
        let axis = |prefix: &str| -> Option<u8> {
            match name.strip_prefix(prefix)? {
                ".x" => Some(0),
                ".y" => Some(1),
                ".z" => Some(2),
                _ => None,
            }
        };
        type OfAxis = fn(u8) -> Special;
        let by_axis: [(&str, OfAxis); 8] = [
            ("%tid", Special::Tid),
            ("%ntid", Special::Ntid),
            ("%ctaid", Special::Ctaid),
            ("%nctaid", Special::Nctaid),
            ("%clusterid", Special::Clusterid),
            ("%nclusterid", Special::Nclusterid),
            ("%cluster_ctaid", Special::ClusterCtaid),
            ("%cluster_nctaid", Special::ClusterNctaid),
        ];
        if let Some(found) = by_axis.iter().find_map(|(prefix, make)| axis(prefix).map(make)) {
            return Some(found);
        }
        if let Some(number) = name.strip_prefix("%envreg") {
            return number.parse().ok().filter(|number| *number < 32).map(Special::Envreg);
        }
        Some(match name {
            "%cluster_ctarank" => Special::ClusterCtarank,
            "%cluster_nctarank" => Special::ClusterNctarank,
            "%is_explicit_cluster" => Special::IsExplicitCluster,
            "%laneid" => Special::Laneid,
            "%warpid" => Special::Warpid,
            "%nwarpid" => Special::Nwarpid,
            "%lanemask_eq" => Special::LanemaskEq,
            "%lanemask_lt" => Special::LanemaskLt,
            "%lanemask_le" => Special::LanemaskLe,
            "%lanemask_gt" => Special::LanemaskGt,
            "%lanemask_ge" => Special::LanemaskGe,
            "%smid" => Special::Smid,
            "%nsmid" => Special::Nsmid,
            "%gridid" => Special::Gridid,
            "%dynamic_smem_size" => Special::DynamicSmemSize,
            "%total_smem_size" | "%aggr_smem_size" => Special::TotalSmemSize,
            "%clock" => Special::Clock,
            "%clock_hi" => Special::ClockHi,
            "%clock64" => Special::Clock64,
            "%globaltimer" | "%globaltimer_lo" => Special::Globaltimer,
            _ => return None,
        })
    }
}
