//! The page of a vLLM server, with the names, labels and histograms of release 0.32.

use super::requests;
use std::fmt::Write;

/// Bounds of the time-to-first-token histogram, seconds.
const TTFT_S: [f64; 22] = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0];
/// Bounds of the time between tokens, seconds.
const ITL_S: [f64; 19] = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0];
/// Bounds of times of whole requests, seconds.
const REQUEST_S: [f64; 21] = [0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0];
/// Bounds of numbers of tokens.
const TOKENS: [f64; 10] = [1.0, 2.0, 5.0, 10.0, 50.0, 100.0, 500.0, 1000.0, 2000.0, 5000.0];

/// One server.
#[derive(Debug, Clone, PartialEq)]
pub struct Server {
    /// Name of the model it serves.
    pub model: String,
    /// Its share of the service's requests.
    pub share: f64,
    /// Requests per second of the whole service at its daily peak.
    pub peak_per_s: f64,
    /// When the process started, seconds since the epoch.
    pub started_s: f64,
    /// Prompt tokens, output tokens, and share of prompt tokens found in the cache, per request.
    pub tokens: (f64, f64, f64),
    /// Seconds a request takes.
    pub takes_s: f64,
}

/// What a server counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counted {
    /// Requests finished.
    pub finished: f64,
    /// Requests whose first token came.
    pub started: f64,
    /// Requests running.
    pub running: f64,
}

impl Server {
    /// What it counted by an instant.
    #[must_use]
    pub fn counted(&self, at_s: f64) -> Counted {
        let by = |at: f64| (self.share * requests(self.peak_per_s, self.started_s, at.max(self.started_s))).floor();
        let (started, finished) = (by(at_s), by(at_s - self.takes_s));
        Counted { finished, started, running: started - finished }
    }

    /// Its page at an instant: some 480 lines.
    #[must_use]
    pub fn page(&self, at_s: f64) -> String {
        let mut page = String::with_capacity(48 << 10);
        let Counted { finished, started, running } = self.counted(at_s);
        let (input, output, hits) = self.tokens;
        let model = &self.model;
        let mut gauge = |name: &str, extra: &str, value: f64| {
            let _ = writeln!(page, "# HELP {name} A level.\n# TYPE {name} gauge\n{name}{{engine=\"0\",model_name=\"{model}\"{extra}}} {value}");
        };
        gauge("vllm:num_requests_running", "", running);
        gauge("vllm:num_requests_waiting", "", 0.0);
        gauge("vllm:kv_cache_usage_perc", "", (running / 64.0).min(1.0));
        gauge("vllm:engine_sleep_state", ",sleep_state=\"awake\"", 1.0);
        gauge("vllm:cache_config_info", ",block_size=\"16\",cache_dtype=\"auto\",num_gpu_blocks=\"27000\"", 1.0);
        let mut counter = |name: &str, extra: &str, value: f64| {
            let (value, began) = (value.floor(), self.started_s);
            let _ = writeln!(
                page,
                "# HELP {name}_total A total.\n# TYPE {name}_total counter\n{name}_total{{engine=\"0\",model_name=\"{model}\"{extra}}} {value:?}"
            );
            let _ = writeln!(page, "# TYPE {name}_created gauge\n{name}_created{{engine=\"0\",model_name=\"{model}\"{extra}}} {began:?}");
        };
        counter("vllm:prompt_tokens", "", started * input);
        counter("vllm:generation_tokens", "", finished * output);
        counter("vllm:prefix_cache_queries", "", started * input);
        counter("vllm:prefix_cache_hits", "", started * input * hits);
        counter("vllm:num_preemptions", "", 0.0);
        counter("vllm:request_success", ",finished_reason=\"stop\"", finished);
        for (name, bounds, count, mean) in [
            ("vllm:time_to_first_token_seconds", &TTFT_S[..], started, 0.09),
            ("vllm:inter_token_latency_seconds", &ITL_S[..], finished * output, 0.03),
            ("vllm:request_time_per_output_token_seconds", &ITL_S[..], finished, 0.03),
            ("vllm:e2e_request_latency_seconds", &REQUEST_S[..], finished, self.takes_s),
            ("vllm:request_queue_time_seconds", &REQUEST_S[..], finished, 0.01),
            ("vllm:request_inference_time_seconds", &REQUEST_S[..], finished, self.takes_s),
            ("vllm:request_prefill_time_seconds", &REQUEST_S[..], finished, 0.08),
            ("vllm:request_decode_time_seconds", &REQUEST_S[..], finished, self.takes_s - 0.08),
            ("vllm:request_prompt_tokens", &TOKENS[..], finished, input),
            ("vllm:request_generation_tokens", &TOKENS[..], finished, output),
            ("vllm:request_params_n", &[1.0, 2.0, 5.0, 10.0, 20.0][..], finished, 1.0),
            ("vllm:request_params_max_tokens", &TOKENS[..], finished, output),
            ("vllm:iteration_tokens_total", &TOKENS[..], finished * output, 8.0),
        ] {
            histogram(&mut page, name, model, bounds, count, mean);
        }
        process(&mut page, self.started_s, at_s);
        page
    }
}

/// A histogram all of whose values are the mean.
fn histogram(page: &mut String, name: &str, model: &str, bounds: &[f64], count: f64, mean: f64) {
    let count = count.floor();
    let _ = writeln!(page, "# HELP {name} A distribution.\n# TYPE {name} histogram");
    for bound in bounds {
        let below = if mean <= *bound { count } else { 0.0 };
        let _ = writeln!(page, "{name}_bucket{{engine=\"0\",le=\"{bound:?}\",model_name=\"{model}\"}} {below:?}");
    }
    let _ = writeln!(page, "{name}_bucket{{engine=\"0\",le=\"+Inf\",model_name=\"{model}\"}} {count:?}");
    let _ = writeln!(page, "{name}_count{{engine=\"0\",model_name=\"{model}\"}} {count:?}");
    let _ = writeln!(page, "{name}_sum{{engine=\"0\",model_name=\"{model}\"}} {:?}", count * mean);
}

/// What every Python process shows, and the HTTP layer: lines a reader has to pass over.
fn process(page: &mut String, started_s: f64, at_s: f64) {
    for (name, value) in [
        ("process_start_time_seconds", started_s),
        ("process_resident_memory_bytes", 6.1e9),
        ("process_virtual_memory_bytes", 9.4e10),
        ("process_open_fds", 88.0),
        ("process_cpu_seconds_total", at_s - started_s),
    ] {
        let _ = writeln!(page, "# HELP {name} Of the process.\n# TYPE {name} gauge\n{name} {value:?}");
    }
    for generation in 0..3 {
        let _ = writeln!(page, "python_gc_collections_total{{generation=\"{generation}\"}} 311.0");
    }
    for handler in ["/v1/chat/completions", "/v1/completions", "/health", "/metrics"] {
        for bound in ["0.1", "0.5", "1.0", "+Inf"] {
            let _ = writeln!(page, "http_request_duration_seconds_bucket{{handler=\"{handler}\",le=\"{bound}\",method=\"POST\"}} 17.0");
        }
        let _ = writeln!(page, "http_requests_total{{handler=\"{handler}\",method=\"POST\",status=\"2xx\"}} 17.0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_as_long_as_a_real_one_and_counts_whole_requests() {
        let server = Server { model: "m".into(), share: 0.1, peak_per_s: 30.0, started_s: 1_790_000_000.0, tokens: (800.0, 200.0, 0.3), takes_s: 6.0 };
        let page = server.page(1_790_003_600.0);
        assert!((300..=600).contains(&page.lines().count()), "{} lines", page.lines().count());
        let counted = server.counted(1_790_003_600.0);
        assert!(counted.finished > 0.0 && counted.finished.fract() == 0.0 && counted.running >= 0.0);
        assert!(page.contains(&format!("vllm:time_to_first_token_seconds_count{{engine=\"0\",model_name=\"m\"}} {:?}", counted.started)));
    }
}
