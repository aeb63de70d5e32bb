//! Ctrl-C for work that may be left half-way: it is asked to end, and says what it kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody pressed Ctrl-C.
#[derive(Debug, Clone, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Watches for it from now on.
    pub fn watch() -> Self {
        let interrupt = Self::default();
        let flag = interrupt.clone();
        // Without a thread or a runtime Ctrl-C ends the program at once: what was written is kept all the same.
        let _ = std::thread::Builder::new().name("interrupt".into()).spawn(move || {
            let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else { return };
            if runtime.block_on(tokio::signal::ctrl_c()).is_ok() {
                flag.ask();
            }
        });
        interrupt
    }

    /// Asks for the end.
    pub fn ask(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether the end is asked for.
    pub fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
