//! How much one replica serves within its target.
//!
//! Step times are linear: a decode step of a batch of `b` takes `alpha + beta b`, the prefill of one prompt `gamma + delta I` with `I` the
//! prompt tokens not found in the prefix cache. A batch of `b` keeps its sequences for
//!
//! `T(b) = gamma + delta I b + (O - 1) (alpha + beta b)`,
//!
//! so `b` sequences leave at the rate `mu(b) = b / T(b)`. Requests in the replica, running and queued, are then a birth-death chain with
//! arrival rate `lambda`, death rates `mu(min(n, B))` and `K = 11 B` places (the state-dependent queue of IBM's inferno `queue-analysis`). A request that finds `n < B` others starts at once; one that finds `n >= B` waits for `n - B + 1` departures, an Erlang
//! time at rate `mu(B)`; one that finds `K` is lost. It is in time when waiting and prefill stay within the TTFT target and the decode step
//! of the batch it joins within the TPOT target. The capacity is the largest `lambda` at which the promised share is in time.

use fleet::{LatencyTarget, SpeedProfile};

/// Queue places for each place in the batch: longer queues are lost requests in all but name.
const QUEUE_PER_BATCH: usize = 10;

/// Largest batch reckoned with.
const BATCH_MAX: u32 = 4_096;

/// Halvings of the bracket: the result is exact to about 1e-9 of the replica's largest rate.
const BISECTIONS: u32 = 30;

/// Step times of one workload on one replica, in seconds.
struct Replica {
    /// Decode step by batch size, index 0 for a batch of one.
    step_s: Vec<f64>,
    /// Time to first token without waiting, by batch size.
    prefill_s: Vec<f64>,
    /// Departures per second, by batch size.
    departures: Vec<f64>,
}

/// Largest arrival rate (requests/s) of one replica whose time to first token and time per output token meet `target`.
///
/// `input_tokens` and `output_tokens` are means per request, `hit_rate` the share of prompt tokens found in the prefix cache (clamped to
/// 0..=1). A rate given outright is returned as it is. Zero when the target cannot be met even by a lone request, and for numbers that are not
/// finite or negative: what is unknown is never free.
#[must_use]
pub fn requests_per_s(profile: &SpeedProfile, input_tokens: f64, output_tokens: f64, hit_rate: f64, target: &LatencyTarget) -> f64 {
    let (alpha_ms, beta_ms, gamma_ms, delta_ms, max_batch) = match *profile {
        SpeedProfile::RequestsPerS(rate) => return if rate.is_finite() { rate.max(0.0) } else { 0.0 },
        SpeedProfile::Linear { alpha_ms, beta_ms, gamma_ms, delta_ms, max_batch } => (alpha_ms, beta_ms, gamma_ms, delta_ms, max_batch),
    };
    let numbers = [alpha_ms, beta_ms, gamma_ms, delta_ms, input_tokens, output_tokens, target.ttft_s, target.share];
    if numbers.iter().any(|v| !v.is_finite() || *v < 0.0) || hit_rate.is_nan() || target.tpot_s.is_some_and(|v| !v.is_finite()) || max_batch == 0 {
        return 0.0;
    }
    let uncached = input_tokens * (1.0 - hit_rate.clamp(0.0, 1.0));
    let decodes = (output_tokens - 1.0).max(0.0);
    let mut replica = Replica { step_s: Vec::new(), prefill_s: Vec::new(), departures: Vec::new() };
    for batch in 1..=max_batch.min(BATCH_MAX) {
        let b = f64::from(batch);
        let step_s = (alpha_ms + beta_ms * b) / 1e3;
        let prefill_s = (gamma_ms + delta_ms * uncached * b) / 1e3;
        let total_s = prefill_s + decodes * step_s;
        if total_s <= 0.0 {
            return 0.0;
        }
        replica.step_s.push(step_s);
        replica.prefill_s.push(prefill_s);
        replica.departures.push(b / total_s);
    }
    largest_rate(&replica, target)
}

fn largest_rate(replica: &Replica, target: &LatencyTarget) -> f64 {
    let mut high = replica.departures.iter().copied().fold(0.0, f64::max);
    let mut low = 0.0;
    // Without load a request is alone.
    if share_in_time(replica, high * 1e-9, target) < target.share {
        return 0.0;
    }
    for _ in 0..BISECTIONS {
        let middle = 0.5 * (low + high);
        if share_in_time(replica, middle, target) >= target.share {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Share of requests that arrive at rate `lambda` and are in time.
fn share_in_time(replica: &Replica, lambda: f64, target: &LatencyTarget) -> f64 {
    let batch = replica.departures.len();
    let places = batch * (QUEUE_PER_BATCH + 1);
    let full = batch - 1;
    let step_in_time = |size: usize| target.tpot_s.is_none_or(|limit| replica.step_s[size] <= limit);
    // Erlang: P(k departures within s) = P(Poisson(mu s) >= k), with the sum carried from one k to the next.
    let slack_s = target.ttft_s - replica.prefill_s[full];
    let mean = (replica.departures[full] * slack_s.max(0.0)).min(700.0);
    let mut poisson = (-mean).exp();
    let mut fewer = poisson;
    let mut weight = 1.0_f64;
    let (mut total, mut good) = (0.0, 0.0);
    for n in 0..=places {
        let in_time = if n < batch {
            f64::from(u8::from(replica.prefill_s[n] <= target.ttft_s && step_in_time(n)))
        } else if n == places || slack_s < 0.0 || !step_in_time(full) {
            0.0
        } else {
            // `fewer` is P(Poisson < k) with k = n - batch + 1.
            let probability = (1.0 - fewer).max(0.0);
            #[expect(clippy::cast_precision_loss, reason = "queue places")]
            let k = (n - batch + 1) as f64;
            poisson *= mean / k;
            fewer += poisson;
            probability
        };
        total += weight;
        good += weight * in_time;
        weight *= lambda / replica.departures[n.min(full)];
        // Only ratios matter.
        if total > 1e200 {
            weight /= 1e200;
            total /= 1e200;
            good /= 1e200;
        }
    }
    good / total
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const H100_8B: SpeedProfile = SpeedProfile::Linear { alpha_ms: 6.0, beta_ms: 0.05, gamma_ms: 8.0, delta_ms: 0.03, max_batch: 128 };

    fn target(ttft_s: f64, tpot_s: Option<f64>, share: f64) -> LatencyTarget {
        LatencyTarget { ttft_s, tpot_s, share }
    }

    fn rate(ttft_s: f64) -> f64 {
        requests_per_s(&H100_8B, 1_000.0, 200.0, 0.0, &target(ttft_s, Some(0.05), 0.95))
    }

    /// One place in the batch, exponential service: the M/M/1/K queue, whose waiting times are known.
    #[test]
    fn agrees_with_the_single_server_queue() {
        let profile = SpeedProfile::Linear { alpha_ms: 0.0, beta_ms: 0.0, gamma_ms: 1_000.0, delta_ms: 0.0, max_batch: 1 };
        let ttft_s = 4.0;
        let found = requests_per_s(&profile, 1.0, 1.0, 0.0, &target(ttft_s, None, 0.9));
        // Enumerated: p_n ~ rho^n, n = 0..=11; in time with probability P(Erlang(n, 1) <= 3), certainly for n = 0.
        let share = |rho: f64| {
            let (mut good, mut total, mut weight) = (0.0, 0.0, 1.0);
            for n in 0..=11_u32 {
                let poisson = |i: u32| (-3.0_f64).exp() * 3.0_f64.powi(i32::try_from(i).unwrap()) / (1..=i).map(f64::from).product::<f64>();
                let late: f64 = (0..n).map(poisson).sum();
                good += weight * if n == 11 { 0.0 } else { 1.0 - late };
                total += weight;
                weight *= rho;
            }
            good / total
        };
        assert!((share(found) - 0.9).abs() < 1e-6, "{found} {}", share(found));
        // Without the limit on places P(wait > 3) = rho exp(-3 (1 - rho)) = 0.1 at 0.48.
        assert!((found - 0.48).abs() < 0.02, "{found}");
    }

    #[test]
    fn a_laxer_target_a_warmer_cache_and_shorter_prompts_never_serve_less() {
        assert!(rate(0.5) > 0.0 && rate(1.0) >= rate(0.5) && rate(20.0) >= rate(1.0));
        let hit = |hit_rate: f64| requests_per_s(&H100_8B, 1_000.0, 200.0, hit_rate, &target(1.0, Some(0.05), 0.95));
        assert!(hit(0.8) > hit(0.0));
    }

    #[test]
    fn what_cannot_be_met_or_is_unknown_serves_nothing() {
        assert!(rate(0.001).abs() < 1e-12);
        assert!(requests_per_s(&H100_8B, f64::NAN, 200.0, 0.0, &target(1.0, None, 0.9)).abs() < 1e-12);
        assert!(requests_per_s(&H100_8B, 1_000.0, 200.0, 0.0, &target(1.0, Some(0.001), 0.9)).abs() < 1e-12);
        assert!((requests_per_s(&SpeedProfile::RequestsPerS(7.5), 1.0, 1.0, 0.0, &target(1.0, None, 0.9)) - 7.5).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn is_finite_and_below_the_largest_rate(alpha in 0.0_f64..50.0, beta in 0.0_f64..2.0, gamma in 0.0_f64..100.0, delta in 0.0_f64..1.0,
            batch in 1_u32..64, input in 1.0_f64..8_000.0, output in 1.0_f64..2_000.0, ttft in 0.01_f64..20.0, share in 0.5_f64..0.999) {
            let profile = SpeedProfile::Linear { alpha_ms: alpha, beta_ms: beta, gamma_ms: gamma, delta_ms: delta, max_batch: batch };
            let found = requests_per_s(&profile, input, output, 0.3, &target(ttft, Some(0.1), share));
            prop_assert!(found.is_finite() && found >= 0.0);
        }
    }
}
