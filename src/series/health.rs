//! GPU faults: what ends a GPU's use, what only warns, and what counts as recovery.
//!
//! A GPU has failed when an error is counted that could not be corrected, when a memory row could not be replaced, or when the driver's last
//! XID is one that asks for a reset. Applications cause XIDs, too: those warn and take nothing away. The XID gauge is history, not state: it
//! keeps its code after the GPU has recovered, so its value alone neither ends a fault nor, once forgiven, begins one anew. A fault ends
//! with evidence only: a new boot of the node after which no error is counted, or the operator's word.

use fleet::Timestamp;
use serde::{Deserialize, Serialize};

/// Boot times are computed from uptimes and differ by seconds between looks; a node does not boot in less than this.
const BOOT_MOVED_S: f64 = 60.0;

/// Reasons are added to a fault up to this length.
const REASON_BYTES_MAX: usize = 256;
const UNCORRECTED: &str = "memory errors could not be corrected";
const ROW: &str = "a faulty memory row could not be replaced";

/// What an XID code means for the GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum XidClass {
    /// The GPU must be reset or its node rebooted before it computes again.
    Hardware,
    /// The application, or a part that recovers by itself; the GPU stays healthy.
    Application,
    /// Not decided by the code alone, or not in the catalogue: told, never acted upon.
    Other,
}

/// The class of an XID code.
///
/// Source: NVIDIA, "Analyzing Xid Errors with the Xid Catalog" (docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), column
/// "Resolution Bucket (Immediate Action)". Hardware are the buckets `RESET_GPU` and `RESTART_BM`, the workflows of 48 and 74 ("a GPU reset or
/// node reboot is needed to clear this error"), and 171 and 172, which detail a 48. Left out of it: 155 (also logged when links are put
/// to sleep on purpose). Application are `RESTART_APP`, `IGNORE` and the workflow of 45, so also 63 (a row was remapped), 92 (many
/// corrected errors) and 94 (a contained error: that application restarts, others go on). The `NVLink` codes 144 to 150 range from harmless to
/// fatal by a sub-code that exporters do not pass on: other.
#[must_use]
pub fn xid_class(code: u32) -> XidClass {
    match code {
        46 | 48 | 62 | 64 | 74 | 79 | 95 | 109 | 110 | 119 | 120 | 136 | 140 | 143 | 156 | 158 | 171 | 172 => XidClass::Hardware,
        8
        | 11
        | 13
        | 14
        | 25
        | 31
        | 32
        | 37..=41
        | 43..=45
        | 60
        | 63
        | 66..=73
        | 75..=77
        | 80
        | 82..=86
        | 88
        | 89
        | 92..=94
        | 96..=108
        | 121
        | 126..=135
        | 137
        | 139
        | 141
        | 157
        | 160
        | 161 => XidClass::Application,
        _ => XidClass::Other,
    }
}

/// Why a GPU is out of use, and since when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// In words, with the values.
    pub reason: String,
    /// When it was first seen.
    pub since: Timestamp,
}

/// What one page says of the health of a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Signs {
    pub xid: Option<u32>,
    pub uncorrected: Option<f64>,
    pub remap_failed: Option<bool>,
    pub boot_s: Option<f64>,
}

/// The health of one GPU.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct Health {
    fault: Option<Fault>,
    warning: Option<Fault>,
    /// The code that was last dealt with; it says nothing new while it stays.
    xid: Option<u32>,
    /// Uncorrected errors that were dealt with.
    uncorrected: Option<f64>,
    /// A remapping failure that the operator has accepted.
    remap_accepted: bool,
    boot_s: Option<f64>,
    /// The node has booted since the fault, and the counts after it are still to be seen.
    booted: bool,
    remap_failed: Option<bool>,
}

impl Health {
    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    pub(crate) fn warning(&self) -> Option<&Fault> {
        self.warning.as_ref()
    }

    /// Takes what a page says. A sign it lacks changes nothing.
    pub(crate) fn take(&mut self, signs: Signs, at: Timestamp) {
        self.booted |= self.boots(signs.boot_s);
        self.take_uncorrected(signs.uncorrected, at);
        self.remap_failed = signs.remap_failed.or(self.remap_failed);
        if signs.remap_failed == Some(true) && !self.remap_accepted {
            self.fail(ROW, ROW.into(), at);
        }
        self.remap_accepted &= signs.remap_failed != Some(false);
        self.take_xid(signs.xid, at);
        // What was counted before the boot must be seen to be gone, on a page that shows it.
        let no_errors = self.uncorrected.is_none() || signs.uncorrected == Some(0.0);
        if self.booted && no_errors && self.remap_failed != Some(true) {
            self.booted = false;
            (self.fault, self.warning) = (None, None);
        }
    }

    /// The operator says the GPU is good: what was shown until now is dealt with.
    pub(crate) fn release(&mut self) {
        self.remap_accepted = self.fault.is_some();
        (self.fault, self.warning) = (None, None);
    }

    /// Whether the node has booted since the last boot known.
    fn boots(&mut self, boot_s: Option<f64>) -> bool {
        let Some(now) = boot_s else { return false };
        let booted = self.boot_s.is_some_and(|then| now > then + BOOT_MOVED_S);
        if booted || self.boot_s.is_none() {
            self.boot_s = Some(now);
        }
        booted
    }

    fn take_uncorrected(&mut self, errors: Option<f64>, at: Timestamp) {
        let Some(errors) = errors else { return };
        if errors > self.uncorrected.unwrap_or(0.0) {
            self.fail(UNCORRECTED, format!("{errors:.0} {UNCORRECTED}"), at);
        }
        self.uncorrected = Some(errors);
    }

    fn take_xid(&mut self, code: Option<u32>, at: Timestamp) {
        let Some(code) = code else { return };
        if self.xid.replace(code) == Some(code) || code == 0 {
            return;
        }
        match xid_class(code) {
            XidClass::Hardware => {
                let reason = format!("XID {code}: the GPU needs a reset");
                self.fail(&reason.clone(), reason, at);
            }
            XidClass::Application => {
                self.warning = Some(Fault { reason: format!("XID {code}: an application's error, or one that recovers by itself"), since: at });
            }
            XidClass::Other => self.warning = Some(Fault { reason: format!("XID {code}: the code alone does not say how serious it is"), since: at }),
        }
    }

    /// The first reason is kept with its time, each later one of another kind is added. A boot before it is no recovery from it.
    fn fail(&mut self, kind: &str, reason: String, at: Timestamp) {
        self.booted = false;
        match &mut self.fault {
            Some(fault) if fault.reason.contains(kind) || fault.reason.len() > REASON_BYTES_MAX => {}
            Some(fault) => fault.reason = format!("{}; {reason}", fault.reason),
            None => self.fault = Some(Fault { reason, since: at }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signs(xid: u32, uncorrected: f64, boot_s: f64) -> Signs {
        Signs { xid: Some(xid), uncorrected: Some(uncorrected), remap_failed: Some(false), boot_s: Some(boot_s) }
    }

    /// Field case 39: a fault ends with a new boot without errors, not with the gauge, and the old code does not begin it anew.
    #[test]
    fn a_fault_needs_evidence_to_end() {
        let mut health = Health::default();
        health.take(signs(79, 1.0, 1_000.0), Timestamp(10));
        let fault = health.fault().unwrap().clone();
        assert_eq!(fault.since, Timestamp(10));
        assert!(fault.reason.contains("XID 79") && fault.reason.contains("could not be corrected"), "{}", fault.reason);
        for signs in [signs(79, 1.0, 1_003.0), signs(0, 1.0, 1_000.0), signs(0, 0.0, 1_000.0), signs(79, 0.0, 1_000.0), Signs::default()] {
            health.take(signs, Timestamp(20));
            assert_eq!(health.fault().unwrap().since, Timestamp(10), "{signs:?}");
        }
        health.take(signs(79, 0.0, 2_000.0), Timestamp(1_810));
        assert_eq!((health.fault(), health.warning()), (None, None));
        health.take(signs(79, 0.0, 2_000.0), Timestamp(1_825));
        assert_eq!(health.fault(), None);
        // A new error is a new fault.
        health.take(signs(79, 2.0, 2_000.0), Timestamp(1_840));
        assert_eq!(health.fault().unwrap().since, Timestamp(1_840));
    }

    /// Field case 39: a boot that leaves errors behind is no recovery.
    #[test]
    fn a_boot_with_errors_keeps_the_fault() {
        let mut health = Health::default();
        health.take(signs(48, 3.0, 1_000.0), Timestamp(10));
        health.take(signs(48, 3.0, 9_000.0), Timestamp(20));
        assert_eq!(health.fault().unwrap().since, Timestamp(10));
        health.release();
        health.take(signs(48, 3.0, 9_000.0), Timestamp(30));
        assert_eq!(health.fault(), None);
    }

    /// Field case 39: an application's error warns and takes nothing away.
    #[test]
    fn application_errors_only_warn() {
        for code in [13, 31, 43, 45, 63, 92, 94, 144, 999] {
            let mut health = Health::default();
            health.take(signs(code, 0.0, 1_000.0), Timestamp(10));
            assert!(health.fault().is_none() && health.warning().is_some(), "{code}");
        }
        for code in [48, 62, 64, 74, 79, 95, 119, 140] {
            let mut health = Health::default();
            health.take(signs(code, 0.0, 1_000.0), Timestamp(10));
            assert!(health.fault().is_some(), "{code}");
        }
    }

    #[test]
    fn a_row_that_could_not_be_replaced_stays_a_fault_over_boots() {
        let mut health = Health::default();
        let failed = |boot_s| Signs { remap_failed: Some(true), boot_s: Some(boot_s), ..Signs::default() };
        health.take(failed(1_000.0), Timestamp(10));
        health.take(failed(9_000.0), Timestamp(20));
        assert_eq!(health.fault().unwrap().since, Timestamp(10));
        health.release();
        health.take(failed(9_000.0), Timestamp(30));
        assert_eq!(health.fault(), None);
        health.take(Signs { remap_failed: Some(false), boot_s: Some(20_000.0), ..Signs::default() }, Timestamp(40));
        health.take(failed(20_000.0), Timestamp(50));
        assert!(health.fault().is_some());
    }
}
