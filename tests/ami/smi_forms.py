"""Answers of `nvidia-smi -q -x` in the forms that drivers give them, made by hand; no GPU was asked.

Names and order of the fields are those of the DTDs that the answers name, as they are printed by nvidia-smi itself
with `--dtd` and described in its manual (man nvidia-smi, "GPU Attributes"); only the fields of gpu_health.py are there,
and a few beside them.

v10   driver 418 to 440, V100: volatile errors as double_bit, retired pages, clocks_throttle_reasons, no remapped rows
v12   driver 525 to 565, H100: SRAM errors by parity and SEC-DED, remapped rows, clocks_event_reasons (from 535)
v13   driver 570 and newer, B200: gpu_recovery_action, sram_threshold_exceeded, gpu_temp_tlimit instead of thresholds
"""

from __future__ import annotations

UUIDS = ("GPU-a0223334-4445-5667-899a-abbccddeeff0", "GPU-b1223334-4445-5667-899a-abbccddeeff0")
ADDRESSES = ("00000000:40:00.0", "00000000:41:00.0")

LINK = """<pci><pci_bus_id>{address}</pci_bus_id><pci_gpu_link_info><pcie_gen><max_link_gen>{max_gen}</max_link_gen>
<current_link_gen>{gen}</current_link_gen></pcie_gen><link_widths><max_link_width>16x</max_link_width>
<current_link_width>{width}</current_link_width></link_widths></pci_gpu_link_info></pci>"""

V10 = (
    """<gpu id="{address}"><product_name>Tesla V100-SXM2-16GB</product_name><uuid>{uuid}</uuid>"""
    + LINK
    + """<clocks_throttle_reasons>
<clocks_throttle_reason_hw_slowdown>{hw_thermal}</clocks_throttle_reason_hw_slowdown>
<clocks_throttle_reason_hw_thermal_slowdown>{hw_thermal}</clocks_throttle_reason_hw_thermal_slowdown>
<clocks_throttle_reason_hw_power_brake_slowdown>{brake}</clocks_throttle_reason_hw_power_brake_slowdown>
<clocks_throttle_reason_sw_thermal_slowdown>{sw_thermal}</clocks_throttle_reason_sw_thermal_slowdown>
</clocks_throttle_reasons>
<ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
<ecc_errors><volatile><single_bit><total>5</total></single_bit><double_bit><device_memory>{errors}</device_memory>
<total>{errors}</total></double_bit></volatile><aggregate><double_bit><total>9</total></double_bit></aggregate></ecc_errors>
<retired_pages><pending_retirement>{pending}</pending_retirement></retired_pages>
<temperature><gpu_temp>{temperature} C</gpu_temp><gpu_temp_slow_threshold>87 C</gpu_temp_slow_threshold></temperature>
</gpu>"""
)
V12 = (
    """<gpu id="{address}"><product_name>NVIDIA H100 80GB HBM3</product_name>
<mig_mode><current_mig>{mig}</current_mig><pending_mig>{mig}</pending_mig></mig_mode><uuid>{uuid}</uuid>"""
    + LINK
    + """<clocks_event_reasons>
<clocks_event_reason_gpu_idle>Active</clocks_event_reason_gpu_idle>
<clocks_event_reason_hw_thermal_slowdown>{hw_thermal}</clocks_event_reason_hw_thermal_slowdown>
<clocks_event_reason_hw_power_brake_slowdown>{brake}</clocks_event_reason_hw_power_brake_slowdown>
<clocks_event_reason_sw_thermal_slowdown>{sw_thermal}</clocks_event_reason_sw_thermal_slowdown>
</clocks_event_reasons>
<ecc_mode><current_ecc>Enabled</current_ecc></ecc_mode>
<ecc_errors><volatile><sram_correctable>1</sram_correctable>
<sram_uncorrectable_parity>{errors}</sram_uncorrectable_parity>
<sram_uncorrectable_secded>0</sram_uncorrectable_secded><dram_correctable>3</dram_correctable>
<dram_uncorrectable>{errors}</dram_uncorrectable></volatile>
<aggregate><dram_uncorrectable>7</dram_uncorrectable></aggregate></ecc_errors>
<retired_pages><pending_retirement>N/A</pending_retirement></retired_pages>
<remapped_rows><remapped_row_corr>0</remapped_row_corr><remapped_row_unc>2</remapped_row_unc>
<remapped_row_pending>{pending}</remapped_row_pending><remapped_row_failure>{failed}</remapped_row_failure></remapped_rows>
<temperature><gpu_temp>{temperature} C</gpu_temp><gpu_temp_slow_threshold>87 C</gpu_temp_slow_threshold></temperature>
</gpu>"""
)
V13 = (
    """<gpu id="{address}"><product_name>NVIDIA B200</product_name><uuid>{uuid}</uuid>
<gpu_recovery_action>{action}</gpu_recovery_action>"""
    + LINK
    + """<clocks_event_reasons>
<clocks_event_reason_hw_thermal_slowdown>{hw_thermal}</clocks_event_reason_hw_thermal_slowdown>
<clocks_event_reason_hw_power_brake_slowdown>{brake}</clocks_event_reason_hw_power_brake_slowdown>
<clocks_event_reason_sw_thermal_slowdown>{sw_thermal}</clocks_event_reason_sw_thermal_slowdown>
</clocks_event_reasons>
<ecc_errors><volatile><sram_uncorrectable_parity>0</sram_uncorrectable_parity>
<sram_uncorrectable_secded>{errors}</sram_uncorrectable_secded><dram_uncorrectable>0</dram_uncorrectable></volatile>
<aggregate><sram_threshold_exceeded>{exceeded}</sram_threshold_exceeded></aggregate></ecc_errors>
<remapped_rows><remapped_row_pending>{pending}</remapped_row_pending>
<remapped_row_failure>{failed}</remapped_row_failure></remapped_rows>
<temperature><gpu_temp>41 C</gpu_temp><gpu_temp_tlimit>{left} C</gpu_temp_tlimit></temperature>
</gpu>"""
)
FORMS = {"v10": V10, "v12": V12, "v13": V13}
HEALTHY = {
    "errors": "0",
    "pending": "No",
    "failed": "No",
    "exceeded": "No",
    "action": "None",
    "temperature": "45",
    "left": "46",
    "mig": "Disabled",
    "max_gen": "5",
    "gen": "5",
    "width": "16x",
    "hw_thermal": "Not Active",
    "brake": "Not Active",
    "sw_thermal": "Not Active",
}


def gpu(form: str = "v12", number: int = 0, **changes: str) -> str:
    """Return the element of one GPU."""
    return FORMS[form].format(address=ADDRESSES[number], uuid=UUIDS[number], **{**HEALTHY, **changes})


def answer(*gpus: str, form: str = "v12") -> str:
    """Return the whole answer."""
    head = f'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_{form}.dtd">\n'
    return f"{head}<nvidia_smi_log>\n<attached_gpus>{len(gpus)}</attached_gpus>\n{''.join(gpus)}\n</nvidia_smi_log>\n"
