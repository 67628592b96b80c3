"""Kernel settings, interrupts, services, module parameters, control groups, PCI error counters."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live_tree import LiveTree, gaps, lines, rows

from rdmadiag.sources import aer, cgroups, interrupts, module_parameters, services, tuning

NIC = "/sys/bus/pci/devices/0000:21:00.0"
FUNCTION = f"{NIC}/uevent:PCI_CLASS=20700\n{NIC}/uevent:PCI_ID=15B3:1021\n"


def test_governors_are_counted_and_idle_states_are_those_of_the_first_processor():
    cpu = "/sys/devices/system/cpu"
    tree = "".join(
        f"{cpu}/cpu{n}/cpufreq/scaling_governor:{'performance' if n else 'powersave'}\n"
        f"{cpu}/cpu{n}/cpufreq/scaling_driver:intel_pstate\n"
        for n in range(4)
    )
    tree += f"{cpu}/cpu0/cpuidle/state2/name:C6\n{cpu}/cpu0/cpuidle/state2/latency:170\n{cpu}/cpu0/cpuidle/state2/disable:0\n"
    tree += "/proc/sys/vm/max_map_count:65530\n/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages:8\n"
    found = list(tuning.read(LiveTree(tree)))
    assert {(row["governor"], row["cpus"]) for row in rows(found, "cpu_governor")} == {
        ("performance", 3),
        ("powersave", 1),
    }
    assert rows(found, "idle_state") == [{"state": "C6", "latency_microseconds": 170, "disabled": 0}]
    assert rows(found, "sysctl") == [{"name": "vm.max_map_count", "value": "65530"}]
    assert rows(found, "hugepage") == [{"size_bytes": 2 << 20, "total": 8}]


def test_settings_are_taken_from_texts():
    assert rows(tuning.parse_sysctl(lines("vm.max_map_count = 65530\nkernel.hostname = secret")), "sysctl") == [
        {"name": "vm.max_map_count", "value": "65530"}
    ]
    meminfo = (
        "HugePages_Total:    1024\nHugePages_Free:        0\nHugePages_Rsvd:        0\nHugepagesize:       2048 kB\n"
    )
    assert rows(tuning.parse_meminfo(lines(meminfo)), "hugepage") == [
        {"size_bytes": 2 << 20, "total": 1024, "free": 0, "reserved": 0}
    ]
    text = '  driver: intel_pstate\n                  The governor "powersave" may decide which speed to use\n'
    (row,) = rows(tuning.parse_cpupower(lines(text)), "cpu_governor")
    assert (row["driver"], row["governor"], row["cpus"]) == ("intel_pstate", "powersave", 1)


def test_interrupts_know_whether_a_near_processor_takes_them():
    # Names and layout as mlx5 of Linux 6.8 prints them.
    tree = FUNCTION + f"{NIC}/local_cpulist:0-1\n{NIC}/msi_irqs/200:msix\n{NIC}/msi_irqs/201:msix\n"
    tree += "/proc/irq/200/smp_affinity_list:0-3\n/proc/irq/200/effective_affinity_list:3\n"
    tree += "/proc/irq/201/effective_affinity_list:1\n/proc/irq/201/mlx5_comp0@pci:0000:21:00.0/\n"
    tree += "/proc/interrupts:            CPU0       CPU1       CPU2       CPU3\n"
    tree += "/proc/interrupts: 200:          0          5          0         17  IR-PCI-MSIX-0000:21:00.0    0-edge      mlx5_async0@pci:0000:21:00.0\n"
    far, near = rows(interrupts.read(LiveTree(tree)), "irq")
    assert (far["local"], far["count"], far["busiest_cpu"], far["completion"]) == (0, 22, 3, 0)
    assert far["name"] == "mlx5_async0@pci:0000:21:00.0"
    assert (near["local"], near["name"], near["completion"]) == (1, "mlx5_comp0@pci:0000:21:00.0", 1)


def test_pasted_interrupts_of_other_devices_are_passed_over():
    text = "           CPU0       CPU1\n 24:   1   0  IO-APIC   5-edge      ACPI:Ged\n 30:   7   9  IR-PCI-MSIX-0000:21:00.0   1-edge   mlx5_comp0@pci:0000:21:00.0\n"
    (row,) = rows(interrupts.parse(lines(text)), "irq")
    assert row["bdf"] == "0000:21:00.0" and row["count"] == 16 and row["busiest_cpu"] == 1


@pytest.mark.parametrize("text,wanted", [("0-2,8", {0, 1, 2, 8}), ("", set()), ("0-999999", set()), ("x", set())])
def test_a_list_of_processors_is_read_or_empty(text, wanted):
    assert interrupts.cpu_list(text) == wanted


def test_a_service_that_no_process_is_does_not_run_on_the_whole_machine_alone():
    tree = "/proc/1/comm:systemd\n/proc/700/comm:slurmd\n/proc/700/limits:Max locked memory         8388608              8388608              bytes     \n"
    found = {row["service"]: row for row in rows(services.read(LiveTree(tree)), "service")}
    assert found["slurmd"] == {"service": "slurmd", "running": 1, "pid": 700, "memlock_bytes": 8388608}
    assert found["irqbalance"]["running"] == 0
    inside = rows(services.read(LiveTree(tree.replace("systemd", "python3"))), "service")
    assert [row["service"] for row in inside] == ["slurmd"]


def test_systemctl_is_parsed():
    text = "● irqbalance.service - irqbalance daemon\n     Loaded: loaded\n     Active: active (running) since Mon\n"
    assert rows(services.parse_systemctl(lines(text)), "service") == [{"service": "irqbalance", "running": 1}]
    shown = (
        "Id=containerd.service\nActiveState=active\nLimitMEMLOCK=8388608\n\nId=docker.service\nLimitMEMLOCK=infinity\n"
    )
    assert rows(services.parse_systemctl(lines(shown)), "service") == [
        {"service": "containerd", "running": 1, "memlock_bytes": 8388608},
        {"service": "dockerd", "memlock_bytes": -1},
    ]


def test_parameters_in_use_and_those_asked_for_are_told_apart():
    tree = "/sys/module/nvidia_peermem/parameters/peerdirect_support:0\n/sys/module/loop/parameters/max_loop:0\n"
    tree += "/proc/cmdline:BOOT_IMAGE=/vmlinuz mlx5_core.prof_sel=2 quiet\n"
    tree += '/etc/modprobe.d/nvidia.conf:options nvidia NVreg_EnableStreamMemOPs=1 NVreg_RegistryDwords="PeerMappingOverride=1;"\n'
    tree += "/lib/modprobe.d/nvidia.conf:options nvidia NVreg_EnableStreamMemOPs=0\n"
    tree += "/etc/modprobe.d/a.conf:options nvidia NVreg_EnableStreamMemOPs=0\n"
    found = rows(module_parameters.read(LiveTree(tree)), "module_parameter")
    assert {"module": "nvidia_peermem", "parameter": "peerdirect_support", "value": "0"} in found
    assert {"module": "mlx5_core", "parameter": "prof_sel", "configured": "2"} in found
    assert {"module": "nvidia", "parameter": "EnableStreamMemOPs", "configured": "1"} in found
    assert {"module": "nvidia", "parameter": "RegistryDwords", "configured": "PeerMappingOverride=1;"} in found
    assert len(found) == 4


@given(st.text(max_size=80))
def test_no_modprobe_line_raises(text):
    list(module_parameters.parse_modprobe(lines(f"options mlx5_core {text}")))
    list(cgroups.parse_amounts(f"mlx5_0 {text}"))
    for file in ("cpu.max", "cpu.stat", "memory.high", "memory.events", "memory.pressure"):
        assert set(cgroups.parse_use({file: text})) <= set(cgroups.parse_use(USE))
    aer.parse(text)
    interrupts.cpu_list(text)


def test_the_limits_of_the_groups_of_rdma_processes_and_of_those_above_are_read():
    tree = "/sys/fs/cgroup/cgroup.controllers:cpu memory rdma\n/proc/self/cgroup:0::/a/b\n"
    tree += "/sys/fs/cgroup/a/b/rdma.max:mlx5_0 hca_handle=2 hca_object=2000\n"
    tree += "/sys/fs/cgroup/a/b/rdma.current:mlx5_0 hca_handle=2 hca_object=17\n"
    tree += "/sys/fs/cgroup/a/rdma.max:mlx5_0 hca_handle=max hca_object=max\n"
    found = rows(cgroups.read(LiveTree(tree)), "cgroup_rdma")
    assert found == [
        {"cgroup": "/a/b", "device": "mlx5_0", "kind": "hca_handle", "most": 2, "current": 2},
        {"cgroup": "/a/b", "device": "mlx5_0", "kind": "hca_object", "most": 2000, "current": 17},
    ]


USE = {  # forms of Documentation/admin-guide/cgroup-v2.rst; the processor's figures are of a trial of cpu-limit in a lab (Linux 6.1)
    "cpu.max": "2000 100000\n",
    "cpu.stat": "usage_usec 262144\nnr_periods 133\nnr_throttled 128\nthrottled_usec 11640000\n",
    "cpu.pressure": "some avg10=59.46 avg60=18.10 avg300=4.30 total=13200000\nfull avg10=59.46 avg60=18.10 avg300=4.30 total=13200000\n",
    "memory.high": "1048576\n",
    "memory.max": "max\n",
    "memory.current": "1040384\n",
    "memory.events": "low 0\nhigh 12\nmax 0\noom 0\noom_kill 0\n",
    "memory.pressure": "some avg10=12.00 avg60=3.10 avg300=0.40 total=1200000\nfull avg10=11.50 avg60=3.00 avg300=0.40 total=1150000\n",
}


def test_what_a_group_may_use_and_how_long_it_waited_is_read_from_the_unified_hierarchy():
    tree = "/sys/fs/cgroup/cgroup.controllers:cpu memory\n/proc/self/cgroup:0::/job\n"
    tree += "".join(f"/sys/fs/cgroup/job/{file}:{line}\n" for file, text in USE.items() for line in text.splitlines())
    (found,) = rows(cgroups.read(LiveTree(tree)), "cgroup_use")
    assert found == {
        "cgroup": "/job",
        "cpu_most": 0.02,
        "periods": 133,
        "throttled": 128,
        "memory_high_bytes": 1 << 20,
        "memory_max_bytes": -1,
        "memory_bytes": 1040384,
        "memory_high_events": 12,
        "memory_max_events": 0,
        "cpu_some_share": 0.5946,
        "cpu_full_share": 0.5946,
        "memory_some_share": 0.12,
        "memory_full_share": 0.115,
    }
    assert cgroups.parse_use({"cpu.max": "max 100000"}) == {"cpu_most": -1.0}
    assert rows(cgroups.read(LiveTree("/proc/self/cgroup:0::/job\n")), "cgroup_use") == []


def test_pasted_limits_of_a_group_belong_to_the_file_before_them():
    # Documentation/admin-guide/cgroup-v2.rst of Linux shows these lines.
    text = "$ cat /sys/fs/cgroup/kubepods.slice/rdma.max\nmlx4_0 hca_handle=2 hca_object=2000\nocrdma1 hca_handle=3 hca_object=max\n"
    found = rows(cgroups.parse(lines(text)), "cgroup_rdma")
    assert found[0] == {"cgroup": "/kubepods.slice", "device": "mlx4_0", "kind": "hca_handle", "most": 2}
    assert found[3]["most"] == -1


def test_pci_errors_of_an_adapter_and_of_the_bridge_above_are_counted():
    real, port = "/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0", "/sys/bus/pci/devices/0000:20:01.0"
    tree = f"{NIC} -> {real}\n{real}/uevent:PCI_CLASS=20700\n{real}/uevent:PCI_ID=15B3:1021\n"
    tree += f"{real}/aer_dev_correctable:RxErr 3\n{real}/aer_dev_correctable:TOTAL_ERR_COR 3\n"
    tree += f"{port} -> /sys/devices/pci0000:20/0000:20:01.0\n{port}/aer_dev_correctable:TOTAL_ERR_COR 1\n"
    tree += f"{port}/aer_rootport_total_err_cor:4\n"
    found = {(row["bdf"], row["counter"]): row["value"] for row in rows(aer.read(LiveTree(tree)), "counter")}
    assert found[("0000:21:00.0", "aer_dev_correctable/TOTAL_ERR_COR")] == 3
    assert found[("0000:20:01.0", "aer_dev_correctable/TOTAL_ERR_COR")] == 1
    assert gaps(aer.read(LiveTree(tree))) == []


def test_pci_errors_that_come_between_two_samples_are_a_confirmed_cause(tmp_path, checked):
    real = "/sys/devices/pci0000:20/0000:20:01.0/0000:21:00.0"
    tree = f"{NIC} -> {real}\n{real}/uevent:PCI_CLASS=20700\n{real}/uevent:PCI_ID=15B3:1021\n"
    tree += "/sys/bus/pci/devices/0000:20:01.0 -> /sys/devices/pci0000:20/0000:20:01.0\n"
    tree += "/sys/devices/pci0000:20/0000:20:01.0/uevent:PCI_CLASS=60400\n/sys/devices/pci0000:20/0000:20:01.0/uevent:PCI_ID=8086:352A\n"
    errors = "/sys/devices/pci0000:20/0000:20:01.0/aer_dev_correctable:BadTLP {0}\n/sys/devices/pci0000:20/0000:20:01.0/aer_dev_correctable:TOTAL_ERR_COR {0}\n"
    (tmp_path / "tree.before.txt").write_text(f"# seconds 100.0\n{tree}{errors.format(7)}")
    (tmp_path / "tree.txt").write_text(f"# seconds 110.0\n{tree}{errors.format(57)}")
    (found,) = [f for f in checked(tmp_path)["findings"] if f["rule"] == "pcie-correctable-errors"]
    assert found["answer"] == "confirmed" and found["subject"]["bdf"] == "0000:20:01.0"
    assert "50 corrected PCIe errors (BadTLP 50)" in found["message"]


def test_a_real_packet_filter_is_the_cause_on_software_roce_and_says_nothing_on_an_adapter(tmp_path, checked):
    data = Path(__file__).parent.parent / "data"
    (tmp_path / "nft.json").write_text((data / "texts/firewall/nft-drop.json").read_text())

    def answers():
        return {f["rule"]: f["answer"] for f in checked(tmp_path)["findings"]}

    (tmp_path / "rdma-link.json").write_text((data / "nodes/rxe-lab/rdma-link.json").read_text())
    (tmp_path / "rdma-dev.json").write_text((data / "nodes/rxe-lab/rdma-dev.json").read_text())
    assert answers().get("udp-4791-filtered") == "confirmed"
    (tmp_path / "nft.json").write_text((data / "texts/firewall/nft-open.json").read_text())
    assert "udp-4791-filtered" not in answers()
    for name in ("rdma-link.json", "rdma-dev.json"):
        (tmp_path / name).unlink()
    (tmp_path / "nft.json").write_text((data / "texts/firewall/nft-drop.json").read_text())
    (tmp_path / "ibv_devinfo.txt").write_text((data / "nodes/mlx5-roce-8nic-h100/ibv_devinfo.txt").read_text())
    assert "udp-4791-filtered" not in answers()
