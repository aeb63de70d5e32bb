//! What holds each GPU.

use fleet::ReplicaId;

/// What holds a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Holder {
    Replica(ReplicaId),
    /// By position.
    Job(usize),
}

/// One GPU now.
#[derive(Debug, Clone, Default)]
pub(crate) struct GpuNow {
    pub failed: bool,
    pub holder: Option<Holder>,
}

impl GpuNow {
    /// Whether something can start on it.
    pub fn is_free(&self) -> bool {
        !self.failed && self.holder.is_none()
    }
}
