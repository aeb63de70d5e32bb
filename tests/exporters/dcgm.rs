//! The page of a DCGM exporter on one node.

use std::fmt::Write;

/// One GPU and who holds it.
#[derive(Debug, Clone, PartialEq)]
pub struct Gpu {
    /// Its UUID.
    pub uuid: String,
    /// Share of time it computes.
    pub active: f64,
    /// Memory in use, MiB.
    pub used_mib: f64,
    /// Memory built in, MiB.
    pub total_mib: f64,
    /// Namespace and pod that hold it.
    pub pod: Option<(String, String)>,
}

/// One node.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Product name of its GPUs.
    pub product: String,
    /// In order of index.
    pub gpus: Vec<Gpu>,
}

impl Node {
    /// Its page at an instant.
    #[must_use]
    pub fn page(&self, at_s: f64) -> String {
        let mut page = String::with_capacity(16 << 10);
        let mut family = |name: &str, kind: &str, value: &dyn Fn(&Gpu) -> f64| {
            let _ = writeln!(page, "# HELP {name} Of a GPU.\n# TYPE {name} {kind}");
            for (index, gpu) in self.gpus.iter().enumerate() {
                let (namespace, pod) = gpu.pod.as_ref().map_or(("", ""), |(namespace, pod)| (namespace.as_str(), pod.as_str()));
                let container = if pod.is_empty() { "" } else { "main" };
                let _ = writeln!(
                    page,
                    "{name}{{gpu=\"{index}\",UUID=\"{uuid}\",pci_bus_id=\"00000000:{index:02X}:00.0\",device=\"nvidia{index}\",modelName=\"{product}\",Hostname=\"{node}\",\
                     DCGM_FI_DRIVER_VERSION=\"570.86.15\",container=\"{container}\",namespace=\"{namespace}\",pod=\"{pod}\"}} {value}",
                    uuid = gpu.uuid,
                    product = self.product,
                    node = self.name,
                    value = value(gpu),
                );
            }
        };
        family("DCGM_FI_DEV_GPU_UTIL", "gauge", &|g| (g.active * 100.0).round());
        family("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", &|g| g.active);
        family("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", &|g| g.active * 0.6);
        family("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", &|g| g.active * 0.5);
        family("DCGM_FI_DEV_FB_USED", "gauge", &|g| g.used_mib);
        family("DCGM_FI_DEV_FB_FREE", "gauge", &|g| g.total_mib - g.used_mib);
        family("DCGM_FI_DEV_POWER_USAGE", "gauge", &|g| 70.0 + 500.0 * g.active);
        family("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "counter", &|g| (at_s * 1_000.0 * (70.0 + 500.0 * g.active)).floor());
        family("DCGM_FI_DEV_GPU_TEMP", "gauge", &|g| 31.0 + 40.0 * g.active);
        family("DCGM_FI_DEV_XID_ERRORS", "gauge", &|_| 0.0);
        page
    }
}
