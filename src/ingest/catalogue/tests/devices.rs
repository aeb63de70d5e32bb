//! Pages of exporters that show GPUs.

use super::*;
use fleet::{Device, Holder, MigSlice};

fn dcgm(line: &str, value: f64) -> String {
    format!("DCGM_FI_DEV_FB_USED{{{line}}} {value}\n")
}

/// Field case 17: the device belongs to the workload, whichever labels name it; the exporter is never the holder.
#[test]
fn devices_belong_to_workloads_not_to_exporters() {
    let a = |pod: &str| {
        format!("UUID=\"GPU-a\",gpu=\"0\",Hostname=\"n1\",pod=\"dcgm-exporter-x1\",namespace=\"monitoring\",exported_pod=\"{pod}\",exported_namespace=\"prod\"")
    };
    let b = "UUID=\"GPU-b\",gpu=\"1\",hostname=\"n1\",modelName=\"H100\",pod=\"serve-a-1\",namespace=\"prod\",container=\"main\"";
    let c = "UUID=\"GPU-c\",gpu=\"2\",pod=\"\",namespace=\"\"";
    let scrape = read(&[dcgm(&a("serve-a-0"), 1.0), dcgm(b, 2.0), dcgm(c, 3.0)].concat());
    let holder = |pod: &str, container: Option<&str>| Some(Holder { namespace: Some("prod".into()), pod: pod.into(), container: container.map(str::to_owned) });
    let holders: Vec<Option<Holder>> = scrape.devices.iter().map(|device| device.holder.clone()).collect();
    assert_eq!(holders, [holder("serve-a-0", None), holder("serve-a-1", Some("main")), None]);
    assert_eq!(scrape.devices[1].product.as_deref(), Some("H100"));
    assert!(scrape.devices.iter().take(2).all(|device| device.node.as_deref() == Some("n1")));
    // The same device, whoever holds it next.
    let next = read(&[dcgm(&a("serve-b-0"), 1.0), dcgm(b, 2.0), dcgm(c, 3.0)].concat());
    assert_eq!(next.devices.iter().map(|device| &device.member).collect::<Vec<_>>(), scrape.devices.iter().map(|device| &device.member).collect::<Vec<_>>());
    assert_eq!(next.devices[0].holder, holder("serve-b-0", None));
    // An idle device whose only pod is one that is an exporter elsewhere on the page, and one that several pods share.
    let idle = read(&[dcgm(&a("serve-a-0"), 1.0), dcgm("UUID=\"GPU-d\",pod=\"dcgm-exporter-x1\"", 0.0)].concat());
    assert_eq!(idle.devices[1].holder, None);
    let shared = read(&[dcgm("UUID=\"GPU-e\",pod=\"p1\"", 5.0), dcgm("UUID=\"GPU-e\",pod=\"p2\"", 5.0)].concat());
    assert_eq!((shared.devices.len(), shared.devices[0].holder.clone(), shared.scalar(Signal::GpuMemoryUsed)), (1, None, Some(5.0 * 1_048_576.0)));
}

/// Three generations of labels and names give the same devices.
#[test]
fn labels_of_all_generations_name_the_same_device() {
    let pages = [
        "dcgm_fb_used{gpu=\"0\",uuid=\"GPU-a\",Hostname=\"n1\",pod_name=\"p\",pod_namespace=\"ns\",container_name=\"c\"} 7\n",
        "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-a\",device=\"nvidia0\",Hostname=\"n1\",pod=\"p\",namespace=\"ns\",container=\"c\"} 7\n",
        "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-a\",pci_bus_id=\"00000000:04:00.0\",hostname=\"n1\",pod=\"p\",namespace=\"ns\",container=\"c\"} 7\n",
    ];
    let device = Device {
        member: MemberId::new("GPU-a").unwrap(),
        uuid: Some("GPU-a".into()),
        node: Some("n1".into()),
        index: Some(0),
        product: None,
        mig: None,
        holder: Some(Holder { namespace: Some("ns".into()), pod: "p".into(), container: Some("c".into()) }),
    };
    for page in pages {
        let scrape = read(page);
        assert_eq!((engine_of(&scrape), &scrape.devices), ("dcgm", &vec![device.clone()]), "{page}");
        assert_eq!(scrape.scalar(Signal::GpuMemoryUsed), Some(7.0 * 1_048_576.0));
    }
}

/// Field case 37: slices are devices of their own. What is said of the whole is not believed of them: there, the engine's activity stands for it.
#[test]
fn slices_have_their_own_readings_and_no_lies() {
    let page = concat!(
        "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\"} 0\nDCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-a\",GPU_I_PROFILE=\"1g.5gb\",GPU_I_ID=\"13\"} 0\n",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu=\"0\",UUID=\"GPU-a\",GPU_I_PROFILE=\"1g.5gb\",GPU_I_ID=\"13\"} 0.995687\n",
        "DCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu=\"0\",UUID=\"GPU-a\",GPU_I_PROFILE=\"1g.5gb\",GPU_I_ID=\"14\"} 0.25\n",
        "DCGM_FI_DEV_FB_USED{gpu=\"0\",UUID=\"GPU-a\",GPU_I_PROFILE=\"1g.5gb\",GPU_I_ID=\"13\"} 312\nDCGM_FI_DEV_FB_FREE{gpu=\"0\",UUID=\"GPU-a\",GPU_I_PROFILE=\"1g.5gb\",GPU_I_ID=\"13\"} 4551\n",
        "DCGM_FI_DEV_GPU_UTIL{gpu=\"1\",UUID=\"GPU-b\",GPU_I_PROFILE=\"\",GPU_I_ID=\"\"} 57\nDCGM_FI_PROF_GR_ENGINE_ACTIVE{gpu=\"1\",UUID=\"GPU-b\"} 0.5\n",
    );
    let scrape = read(page);
    let rounded: Vec<(&str, f64)> = by_member(&scrape, Signal::GpuUtilisation).into_iter().map(|(member, value)| (member, (value * 1e6).round())).collect();
    assert_eq!(rounded, [("GPU-a/13", 995_687.0), ("GPU-a/14", 250_000.0), ("GPU-b", 570_000.0)]);
    assert_eq!(by_member(&scrape, Signal::GpuMemoryTotal), [("GPU-a/13", 4863.0 * 1_048_576.0)]);
    let slice = scrape.devices.iter().find(|device| device.member.as_str() == "GPU-a/13").unwrap();
    assert_eq!((slice.mig.clone(), slice.index), (Some(MigSlice { profile: "1g.5gb".into(), instance: "13".into() }), Some(0)));
}

/// Field case 37: a loaded slice whose utilisation reads 0 is as busy as its engine; without that, it is unknown, which is not idle.
#[test]
fn a_slice_without_activity_is_unknown() {
    let slice = "gpu=\"0\",GPU_I_ID=\"7\",GPU_I_PROFILE=\"1g.12gb\",Hostname=\"n1\"";
    let util = format!("DCGM_FI_DEV_GPU_UTIL{{{slice}}} 0\n");
    let used = dcgm(slice, 100.0);
    let active = format!("DCGM_FI_PROF_GR_ENGINE_ACTIVE{{{slice}}} 0.92\n");
    assert_eq!(by_member(&read(&[&*util, &*used, &*active].concat()), Signal::GpuUtilisation), [("n1/0/7", 0.92)]);
    for page in [[&*util, &*used].concat(), used] {
        let scrape = read(&page);
        assert_eq!((scrape.is_ok(), scrape.scalar(Signal::GpuUtilisation), scrape.devices.len()), (true, None, 1));
        assert!(Catalogue::builtin().missing_signals(&scrape).contains(&Signal::GpuUtilisation));
    }
}

/// Marks for "not available" are no readings; they cost their own device and name, nothing else.
#[test]
fn marks_for_nothing_are_no_readings() {
    let marked = [("b", "9223372036854775794"), ("c", "2147483632"), ("d", "140737488355329"), ("e", "NaN"), ("f", "1000000")];
    let lines = marked.map(|(uuid, mark)| {
        let of = |name: &str| format!("DCGM_FI_DEV_{name}{{UUID=\"GPU-{uuid}\"}} {mark}\n");
        of("GPU_TEMP") + &of("TOTAL_ENERGY_CONSUMPTION")
    });
    let sound = concat!(
        "DCGM_FI_DEV_GPU_TEMP{UUID=\"GPU-a\"} 55\nDCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{UUID=\"GPU-a\"} 5500\n",
        "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{UUID=\"GPU-a\"} 68\nDCGM_FI_DEV_CLOCK_THROTTLE_REASONS{UUID=\"GPU-b\"} 4\n",
    );
    let page = lines.concat() + sound;
    let scrape = read(&page);
    assert_eq!(by_member(&scrape, Signal::GpuTemperature), [("GPU-a", 55.0)]);
    assert_eq!(by_member(&scrape, Signal::GpuEnergy), [("GPU-a", 5.5), ("GPU-f", 1000.0)]);
    assert_eq!(by_member(&scrape, Signal::GpuThrottled), [("GPU-a", 1.0), ("GPU-b", 0.0)]);
    let reasons: Vec<&str> = scrape.skipped.iter().filter(|skipped| skipped.metric == "DCGM_FI_DEV_GPU_TEMP").map(|skipped| skipped.reason.as_str()).collect();
    assert_eq!(reasons.iter().filter(|reason| reason.contains("not available")).count(), 3, "{reasons:?}");
    assert!(reasons.iter().any(|reason| reason.contains("not finite")) && reasons.iter().any(|reason| reason.contains("not believed")), "{reasons:?}");
    assert_eq!(scrape.devices.len(), 5, "a device without a reading is not known by a line that was left out: {:?}", scrape.devices);
}

/// Field case 45: MiB become bytes; two models of 24,000 MiB do not fit on a card of 46,068 MiB.
#[test]
fn mebibytes_become_bytes() {
    let scrape = read("DCGM_FI_DEV_FB_FREE{UUID=\"GPU-a\"} 46068\nDCGM_FI_DEV_FB_USED{UUID=\"GPU-a\"} 0\n");
    let total = scrape.scalar(Signal::GpuMemoryTotal).unwrap();
    assert_eq!(total.total_cmp(&48_305_799_168.0), std::cmp::Ordering::Equal);
    assert!(2.0 * 24_000.0 * 1_048_576.0 > total);
}

#[test]
fn devices_of_amd_are_read() {
    let labels = "card_model=\"0x74a1\",gpu_id=\"0\",gpu_partition_id=\"0\",gpu_compute_partition_type=\"spx\",hostname=\"m1\",serial_number=\"S1\",pod=\"serve-0\",namespace=\"prod\",container=\"main\"";
    let page = format!(
        "# TYPE gpu_gfx_activity gauge\ngpu_gfx_activity{{{labels}}} 87\ngpu_used_vram{{{labels}}} 100\ngpu_total_vram{{{labels}}} 196592\ngpu_package_power{{{labels}}} 65535\n# TYPE gpu_energy_consumed gauge\ngpu_energy_consumed{{{labels}}} 5000000\ngpu_junction_temperature{{{labels}}} 61\n"
    );
    let scrape = read(&page);
    assert_eq!((engine_of(&scrape), scrape.scalar(Signal::GpuUtilisation), scrape.scalar(Signal::GpuEnergy)), ("amd", Some(0.87), Some(5.0)));
    assert_eq!((scrape.scalar(Signal::GpuMemoryTotal), scrape.scalar(Signal::GpuPower)), (Some(196_592.0 * 1_048_576.0), None));
    let device = &scrape.devices[0];
    assert_eq!((device.member.as_str(), device.node.as_deref(), device.index, &device.mig), ("S1", Some("m1"), Some(0), &None));
    assert_eq!(device.holder.as_ref().map(|holder| holder.pod.as_str()), Some("serve-0"));
    assert_eq!(read(&page.replace("gpu_gfx", "amd_gpu_gfx").replace("gpu_used", "amd_gpu_used")).scalar(Signal::GpuUtilisation), Some(0.87));
    assert!(read(&page.replace("spx", "cpx")).devices[0].mig.is_some());
}

#[test]
fn the_page_of_our_agent_is_read() {
    let labels = "node=\"n1\",gpu=\"3\",uuid=\"GPU-z\",product=\"H200\"";
    let page = format!(
        "turnaround_gpu_utilisation_ratio{{{labels}}} 0.5\nturnaround_gpu_memory_used_bytes{{{labels}}} 10\nturnaround_gpu_memory_free_bytes{{{labels}}} 20\nturnaround_gpu_memory_total_bytes{{{labels}}} 30\nturnaround_gpu_processes{{{labels}}} 2\nturnaround_gpu_energy_joules_total{{{labels}}} 7\nturnaround_gpu_memory_used_bytes{{{labels},mig_profile=\"1g.10gb\",mig_instance=\"5\"}} 4\nturnaround_node_boot_time_seconds{{node=\"n1\"}} 1796000000\n"
    );
    let scrape = read(&page);
    assert_eq!((engine_of(&scrape), Catalogue::builtin().missing_signals(&scrape)), ("turnaround-agent", vec![]));
    assert_eq!(by_member(&scrape, Signal::GpuMemoryUsed), [("GPU-z", 10.0), ("GPU-z/5", 4.0)]);
    assert_eq!((scrape.scalar(Signal::BootTime), scrape.scalar(Signal::GpuProcesses)), (Some(1_796_000_000.0), Some(2.0)));
}
