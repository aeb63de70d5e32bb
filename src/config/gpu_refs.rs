//! GPUs as a file names them: `gpu001/0-3`, `gpu001/0,2`, or UUIDs.

use crate::{
    error::{Code, Findings},
    node_range,
};
use fleet::{Fleet, Gpu};
use std::ops::Range;

/// The GPUs that `entries` name, in order; `None` when one is unknown, named twice or malformed, which is then noted.
pub(crate) fn gpus<'f>(entries: &[(&str, Range<usize>)], who: &str, fleet: &'f Fleet, findings: &mut Findings<'_>) -> Option<Vec<&'f Gpu>> {
    let mut found: Vec<&Gpu> = Vec::new();
    let mut sound = true;
    for (text, span) in entries {
        let names = match names(text) {
            Ok(names) => names,
            Err(why) => {
                findings.refuse(
                    Code::Range,
                    span.clone(),
                    format!("{who}: {text:?} does not name GPUs: {why}"),
                    "not GPUs",
                    "write node/first-last, such as \"gpu001/0-3\"",
                );
                sound = false;
                continue;
            }
        };
        for name in names {
            let Some(gpu) = fleet.gpus.iter().find(|gpu| gpu.id.as_str() == name || at_place(gpu, &name)) else {
                if findings.fleet_is_sound() {
                    findings.dangling(span.clone(), who, "GPU", &name, fleet.gpus.iter().map(|gpu| gpu.id.as_str()));
                }
                sound = false;
                // The other GPUs of the entry would say the same.
                break;
            };
            if found.iter().any(|other| other.id == gpu.id) {
                findings.refuse(Code::Duplicate, span.clone(), format!("{who} names GPU {} twice", gpu.id), "named twice", "name it once");
                sound = false;
            } else {
                found.push(gpu);
            }
        }
    }
    sound.then_some(found)
}

/// Whether `node/index` is where the GPU sits.
fn at_place(gpu: &Gpu, name: &str) -> bool {
    name.rsplit_once('/').is_some_and(|(node, index)| gpu.node.as_str() == node && index.parse() == Ok(gpu.index))
}

/// `node/0-3` as single names; a text without a slash (a UUID) stands for itself.
fn names(text: &str) -> Result<Vec<String>, String> {
    match text.rsplit_once('/') {
        Some((node, indices)) => node_range::expand(&format!("{node}/[{indices}]")),
        None => Ok(vec![text.to_owned()]),
    }
}

/// Notes GPUs that are not `count` of `kind` in one island, as the occupant needs. Tells whether they are.
pub(crate) fn fit(gpus: &[&Gpu], count: u32, who: &str, span: Range<usize>, findings: &mut Findings<'_>) -> bool {
    if gpus.len() != count as usize {
        let message = format!("{who} holds {count} GPUs, but {} are named", gpus.len());
        findings.refuse(Code::Placement, span, message, "another number of GPUs", format!("name exactly {count}"));
        return false;
    }
    if let Some(stray) = gpus.iter().find(|gpu| gpu.island != gpus[0].island) {
        let message = format!("{who} is spread over islands {} and {}", gpus[0].island, stray.island);
        findings.refuse(Code::Placement, span, message, "not in one island", "name GPUs of one island, or make `island` of the pool larger");
        return false;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_ranges() {
        assert_eq!(names("gpu001/2-3").unwrap(), ["gpu001/2", "gpu001/3"]);
        assert_eq!(names("gpu001/0,2").unwrap(), ["gpu001/0", "gpu001/2"]);
        assert_eq!(names("GPU-5a").unwrap(), ["GPU-5a"]);
        assert!(names("gpu001/").is_err());
        assert!(names("gpu001/3-1").is_err());
    }
}
