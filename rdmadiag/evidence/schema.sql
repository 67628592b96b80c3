-- Evidence tables. Each comment after a column gives its meaning, [unit] and (source); `rdmadiag tables` prints them.
-- A NULL is "not known". Every row has its node and its origin (a path of the node, or file:line of a text).

-- Nodes that evidence is about; filled by every run.
CREATE TABLE node (
  node TEXT NOT NULL,        -- name of the node (host name, --from NAME=PATH, or file name)
  hostname TEXT,             -- host name (/proc/sys/kernel/hostname)
  kernel TEXT,               -- kernel release (/proc/sys/kernel/osrelease, uname -r)
  arch TEXT,                 -- machine architecture (uname -m)
  uptime_seconds REAL,       -- time since boot [s] (/proc/uptime)
  container TEXT,            -- container runtime where one is seen, '' where none is (/proc/1/cgroup, /.dockerenv, /run/.containerenv)
  virtual TEXT,              -- hypervisor where one is seen, '' where none is (/sys/class/dmi/id, cpuinfo flag hypervisor)
  root INTEGER,              -- 1 if we looked as root (effective uid)
  boot_id TEXT,              -- a new one each boot (/proc/sys/kernel/random/boot_id)
  rdma_netns TEXT,           -- 'shared' (all network namespaces see all RDMA devices) or 'exclusive' (NLDEV SYS_GET, rdma system)
  modules_supported INTEGER, -- 1 if this kernel can load modules (/proc/modules exists)
  cmdline TEXT,              -- kernel command line (/proc/cmdline)
  tainted INTEGER,           -- taint bits of the kernel (/proc/sys/kernel/tainted)
  origin TEXT,               -- where the row was read
  UNIQUE (node)
);

-- What could not be seen. A rule that reads a table named here and finds no row answers unknown.
CREATE TABLE gap (
  node TEXT,                 -- node, NULL for all nodes
  source TEXT,               -- source that could not read
  "table" TEXT NOT NULL,     -- table or view left incomplete; table.column where only that column is
  subject TEXT,              -- device, file or command
  kind TEXT,                 -- not_given, not_permitted, unreadable, timeout, crash, truncated, restricted, assumed
  reason TEXT,               -- why
  how TEXT                   -- what would make it readable
);

-- What was read: one row a source and node on a live or captured node, one a recognised text.
CREATE TABLE reading (
  node TEXT,                 -- node
  source TEXT,               -- source module, or tool whose text was recognised
  log TEXT,                  -- 'kernel' or 'application' for a log, else NULL
  lines INTEGER,             -- lines read [count], for texts
  complete INTEGER,          -- 1 if nothing of it is missing (live, captured, or a kernel log from its first boot line); NULL for an excerpt
  seconds REAL,              -- time the reading took [s]
  origin TEXT                -- path or file
);

-- RDMA devices. (/sys/class/infiniband, rdma dev, ibv_devinfo, ibstat)
CREATE TABLE device (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name (mlx5_0)
  driver TEXT,               -- kernel driver: mlx5, mlx4, bnxt_re, irdma, efa, hns, erdma, ionic, rxe, siw (driver link, name prefix)
  transport TEXT,            -- 'InfiniBand', 'iWARP' ... as ibv_devinfo prints (ibv_devinfo)
  protocol TEXT,             -- 'ib', 'roce', 'iw', 'usnic', 'opa' (NLDEV DEV_PROTOCOL, else from link_layer)
  fw_ver TEXT,               -- firmware version (fw_ver)
  node_guid TEXT,            -- node GUID, 16 hex digits with colons (node_guid)
  sys_image_guid TEXT,       -- system image GUID (sys_image_guid)
  vendor_id INTEGER,         -- vendor id (device/vendor, ibv_devinfo)
  vendor_part_id INTEGER,    -- part id (device/device, ibv_devinfo)
  board_id TEXT,             -- board id, PSID (board_id)
  hca_type TEXT,             -- MT4129 ... (hca_type, ibstat CA type)
  hw_ver TEXT,               -- hardware revision (hw_rev, ibv_devinfo)
  bdf TEXT,                  -- PCI address of the function, domain:bus:device.function (device link)
  numa_node INTEGER,         -- NUMA node, NULL where the kernel says -1 (device/numa_node)
  ports INTEGER,             -- number of ports [count] (ports/, phys_port_cnt)
  uverbs TEXT,               -- its character device, uverbs0 (device/infiniband_verbs, class/infiniband_verbs)
  max_qp INTEGER,            -- limit of QPs [count] (ibv_devinfo -v)
  max_cqe INTEGER,           -- limit of entries of one CQ [count] (ibv_devinfo -v)
  max_mr_size_bytes INTEGER, -- largest MR [bytes] (ibv_devinfo -v)
  in_verbs INTEGER,          -- 1 if libibverbs lists it (ibv_devices, ibv_devinfo); 0 if that list was read and it is not there
  origin TEXT,               -- where the row was read
  UNIQUE (node, device)
);

-- How many RDMA devices a tool of user space saw; one row each time it listed them. (ibv_devices, ibv_devinfo, ibstatus, rdma)
CREATE TABLE verbs_list (
  node TEXT,                 -- node
  tool TEXT,                 -- tool that printed it: ibv_devices, ibv_devinfo, ibstatus, rdma
  devices INTEGER,           -- devices listed [count]; 0 also when the tool said that there are none, or that it could not get a list
  origin TEXT                -- where the row was read
);

-- Ports of RDMA devices. (/sys/class/infiniband/D/ports/P, rdma link, ibv_devinfo, ibstat, ibstatus)
CREATE TABLE port (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  port INTEGER,              -- port number, from 1
  state TEXT,                -- DOWN, INIT, ARMED, ACTIVE, ACTIVE_DEFER (state)
  phys_state TEXT,           -- Sleep, Polling, Disabled, PortConfigurationTraining, LinkUp, LinkErrorRecovery, Phy Test (phys_state)
  link_layer TEXT,           -- 'InfiniBand' or 'Ethernet' (link_layer)
  rate_gbps REAL,            -- rate [Gbit/s] (rate)
  rate_text TEXT,            -- rate as the kernel prints it, with width and speed: 400 Gb/sec (4X NDR)
  active_mtu INTEGER,        -- MTU in use [bytes] (ibv_devinfo active_mtu)
  max_mtu INTEGER,           -- largest MTU of the port [bytes] (ibv_devinfo max_mtu)
  lid INTEGER,               -- LID; 0 on RoCE (lid)
  sm_lid INTEGER,            -- LID of the subnet manager; 0 when there is none (sm_lid)
  netdev TEXT,               -- its netdev (gid_attrs/ndevs, device/net, rdma link)
  capability TEXT,           -- capability mask as printed (cap_mask)
  origin TEXT,               -- where the row was read
  UNIQUE (node, device, port)
);

-- GID table entries that are filled. (ports/P/gids, gid_attrs/types, gid_attrs/ndevs, show_gids, ibv_devinfo -v)
CREATE TABLE gid (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  port INTEGER,              -- port number
  gid_index INTEGER,         -- index in the port's table
  gid TEXT,                  -- the GID, eight groups of four hex digits, lower case
  type TEXT,                 -- 'IB', 'RoCE v1' or 'RoCE v2' (gid_attrs/types; 'IB/RoCE v1' resolved by link_layer)
  kind TEXT,                 -- 'zero', 'link_local', 'ipv4', 'ipv6' (from the GID's bits)
  ip TEXT,                   -- IPv4 or IPv6 address that it stands for, NULL for link-local
  netdev TEXT,               -- netdev of the entry (gid_attrs/ndevs)
  index_before INTEGER,      -- index of this GID and type in an earlier bundle or capture of the same boot (--previous), NULL without one
  origin TEXT,               -- where the row was read
  UNIQUE (node, device, port, gid_index)
);

-- Partition keys of InfiniBand ports that are filled. (ports/P/pkeys)
CREATE TABLE pkey (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  port INTEGER,              -- port number
  pkey_index INTEGER,        -- index in the port's table
  pkey INTEGER,              -- P_Key: bit 15 says full member, the 15 below are the partition
  origin TEXT,               -- where the row was read
  UNIQUE (node, device, port, pkey_index)
);

-- Which node talks to which: --peer was given for node. Rules of two ends read it.
CREATE TABLE peering (
  node TEXT,                 -- the node that is looked at
  peer TEXT,                 -- the node at the other end
  origin TEXT,               -- the value of --peer
  UNIQUE (node, peer)
);

-- Counters as the kernel spells them, with two samples where there are two. (counters/, hw_counters/, rdma statistic)
CREATE TABLE counter (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name; NULL for a netdev's counter
  port INTEGER,              -- port number
  netdev TEXT,               -- netdev, for ethtool counters
  bdf TEXT,                  -- PCI function, for AER counters
  kind TEXT,                 -- 'counters' (PMA), 'hw_counters', 'ethtool' (-S), 'fec', 'pause' (ethtool -I), 'netdev' (/sys/class/net), 'aer' (PCI errors)
  counter TEXT,              -- name as the kernel spells it
  value INTEGER,             -- last value [as the kernel's unit: count, or 4 bytes for port_*_data]
  previous INTEGER,          -- value of the first sample, NULL with one sample
  seconds REAL,              -- time between the samples [s]
  delta INTEGER,             -- value - previous; NULL when saturated, reset, wrapped, absent or one sample
  per_second REAL,           -- delta / seconds [1/s]
  state TEXT,                -- 'two samples', 'one sample', 'reset', 'saturated', 'unreadable'; with --previous also 'wrapped', 'other boot', 'boot unknown'
  origin TEXT,               -- where the row was read
  UNIQUE (node, device, port, netdev, bdf, kind, counter)
);

-- Which common meaning each driver's counter has. (rdmadiag/explain/counters.py)
CREATE TABLE counter_meaning (
  driver TEXT,               -- driver, 'pma' for counters/, 'ethtool' for ethtool -S, 'fec', 'pause', 'netdev' as counter.kind
  counter TEXT,              -- the kernel's spelling
  signal TEXT,               -- common meaning, one spelling for all drivers
  side TEXT,                 -- requester, responder, both, link
  bits INTEGER,              -- width [bit]; narrow PMA counters saturate at the maximum
  terminal INTEGER,          -- 1 if one increment means a QP that died
  benign INTEGER,            -- 1 if it moves in health
  UNIQUE (driver, counter)
);

-- Counters by meaning: what rules read; one row a device, port and counter. (counter joined with counter_meaning, device and port)
CREATE TABLE signal (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  port INTEGER,              -- port number
  netdev TEXT,               -- netdev of the port, or of the counter
  name TEXT,                 -- common meaning of the counter (rdmadiag explain counter NAME)
  counter TEXT,              -- the kernel's spelling
  value INTEGER,             -- last value [as counter.value]
  delta INTEGER,             -- change between the samples; NULL when it cannot be told
  seconds REAL,              -- time between the samples [s]
  per_second REAL,           -- delta / seconds [1/s]
  state TEXT,                -- as counter.state
  terminal INTEGER,          -- 1 if one increment means a QP that died
  benign INTEGER,            -- 1 if it moves in health
  side TEXT,                 -- requester, responder, both, link
  driver TEXT,               -- kernel driver of the device
  origin TEXT                -- where the counter was read
);

-- Queue pairs. (RDMA netlink RES_QP_GET, rdma -d -j res show qp)
CREATE TABLE qp (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  port INTEGER,              -- port number, NULL before INIT
  qpn INTEGER,               -- local QP number (lqpn)
  rqpn INTEGER,              -- remote QP number (RC, UC)
  type TEXT,                 -- SMI, GSI, RC, UC, UD, RAW_PACKET, XRC_INI, XRC_TGT, DRIVER
  state TEXT,                -- RESET, INIT, RTR, RTS, SQD, SQE, ERR
  rq_psn INTEGER,            -- receive PSN
  sq_psn INTEGER,            -- send PSN
  path_mig_state TEXT,       -- MIGRATED, REARM, ARMED
  pdn INTEGER,               -- protection domain
  pid INTEGER,               -- owner process id; NULL for a kernel owner
  comm TEXT,                 -- owner's name; '[name]' for a kernel owner
  origin TEXT                -- where the row was read
);

-- Queue pairs counted: one row an owner, state and type, so that rules need not go through 100,000 of them. (table qp)
CREATE TABLE qp_group (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  port INTEGER,              -- port number
  type TEXT,                 -- as qp.type
  state TEXT,                -- as qp.state
  pid INTEGER,               -- owner process id; NULL for a kernel owner
  comm TEXT,                 -- owner's name
  qps INTEGER,               -- queue pairs [count]
  first_qpn INTEGER,         -- lowest QP number
  last_qpn INTEGER,          -- highest QP number
  origin TEXT                -- where one of them was read
);

-- Memory regions. (RES_MR_GET, rdma -d -j res show mr)
CREATE TABLE mr (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  mrn INTEGER,               -- number of the MR
  rkey TEXT,                 -- rkey, hex digits without 0x; only with CAP_NET_ADMIN
  lkey TEXT,                 -- lkey, hex digits without 0x; only with CAP_NET_ADMIN
  iova TEXT,                 -- start address, hex digits without 0x (iproute2 and the JSON keep the low 32 bits only)
  mrlen_bytes INTEGER,       -- length [bytes]
  pdn INTEGER,               -- protection domain
  pid INTEGER,               -- owner process id
  comm TEXT,                 -- owner's name
  origin TEXT                -- where the row was read
);

-- Completion queues. (RES_CQ_GET, rdma -d -j res show cq)
CREATE TABLE cq (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  cqn INTEGER,               -- number of the CQ
  cqe INTEGER,               -- depth [entries]
  users INTEGER,             -- QPs that use it [count]
  poll_ctx TEXT,             -- DIRECT, SOFTIRQ, WORKQUEUE, UNBOUND_WORKQUEUE
  pid INTEGER,               -- owner process id
  comm TEXT,                 -- owner's name
  origin TEXT                -- where the row was read
);

-- How many objects of each kind a device holds. (RES_GET, rdma -j res show)
CREATE TABLE resource (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  name TEXT,                 -- pd, cq, qp, cm_id, mr, ctx, srq
  current INTEGER,           -- objects now [count]
  origin TEXT,               -- where the row was read
  UNIQUE (node, device, name)
);

-- Network devices. (/sys/class/net, rtnetlink, ip link)
CREATE TABLE netdev (
  node TEXT,                 -- node
  netdev TEXT,               -- interface name
  ifindex INTEGER,           -- interface index
  mtu_bytes INTEGER,         -- MTU [bytes]
  operstate TEXT,            -- up, down, lowerlayerdown, dormant, unknown ... lower case
  carrier INTEGER,           -- 1 with carrier, 0 without, NULL when administratively down
  admin_up INTEGER,          -- 1 if administratively up (flags IFF_UP)
  speed_mbps INTEGER,        -- speed [Mbit/s] (speed)
  address TEXT,              -- link-layer address
  driver TEXT,               -- kernel driver (device/driver)
  bdf TEXT,                  -- PCI address (device)
  numa_node INTEGER,         -- NUMA node, NULL where the kernel says -1
  kind TEXT,                 -- vlan, bond, bridge, veth ... '' for a plain device (uevent DEVTYPE, ip -d link)
  master TEXT,               -- bond or bridge that it belongs to
  carrier_changes INTEGER,   -- carrier changes since the device was made [count]
  lower TEXT,                -- netdev below a VLAN or the like (IFLA_LINK, ip link: name@lower)
  vlan_id INTEGER,           -- VLAN id of a VLAN device (IFLA_VLAN_ID, ip -d link)
  egress_priorities TEXT,    -- which priority of the kernel becomes which one of the tag: '3:3,4:4'; '' for none (egress-qos-map)
  fw_ver TEXT,               -- firmware version as the driver prints it (ethtool -i)
  origin TEXT,               -- where the row was read
  UNIQUE (node, netdev)
);

-- Addresses of network devices. (RTM_GETADDR, ip addr)
CREATE TABLE addr (
  node TEXT,                 -- node
  netdev TEXT,               -- interface name
  family TEXT,               -- inet or inet6
  address TEXT,              -- address without prefix length
  prefix INTEGER,            -- prefix length [bit]
  scope TEXT,                -- global, link, host
  origin TEXT,               -- where the row was read
  UNIQUE (node, netdev, address)
);

-- Routes. (RTM_GETROUTE, ip route)
CREATE TABLE route (
  node TEXT,                 -- node
  dst TEXT,                  -- destination with prefix, or 'default'
  gateway TEXT,              -- next hop
  netdev TEXT,               -- outgoing interface
  src TEXT,                  -- preferred source
  metric INTEGER,            -- metric
  "table" TEXT,              -- main, local, or number
  type TEXT,                 -- unicast, local, blackhole, unreachable ...
  origin TEXT                -- where the row was read
);

-- How network devices are set up. (ethtool -g, -l, -c, -a, --show-fec, -k: ethtool netlink)
CREATE TABLE netdev_setting (
  node TEXT,                 -- node
  netdev TEXT,               -- interface name
  autoneg INTEGER,           -- 1 if the link negotiates (ethtool)
  lanes INTEGER,             -- lanes of the link [count] (ethtool)
  rx_ring INTEGER,           -- receive ring of the Ethernet queues [entries] (ethtool -g); RDMA queue pairs have rings of their own
  rx_ring_max INTEGER,       -- its largest size [entries] (ethtool -g)
  tx_ring INTEGER,           -- send ring of the Ethernet queues [entries] (ethtool -g)
  tx_ring_max INTEGER,       -- its largest size [entries] (ethtool -g)
  channels INTEGER,          -- combined channels, or receive channels where the driver has no combined ones [count] (ethtool -l)
  channels_max INTEGER,      -- most of them [count] (ethtool -l)
  adaptive_rx INTEGER,       -- 1 if interrupt moderation adapts to the load (ethtool -c)
  rx_usecs INTEGER,          -- longest wait before a receive interrupt [us] (ethtool -c)
  tx_usecs INTEGER,          -- longest wait before a send interrupt [us] (ethtool -c)
  pause_autoneg INTEGER,     -- 1 if global pause (802.3x) is negotiated (ethtool -a)
  pause_rx INTEGER,          -- 1 if global pause frames are obeyed (ethtool -a)
  pause_tx INTEGER,          -- 1 if global pause frames are sent (ethtool -a)
  fec TEXT,                  -- forward error correction in use: Off, RS, BaseR, LLRS; comma separated (ethtool --show-fec, Active)
  fec_configured TEXT,       -- what is configured: Auto, Off, RS ...; comma separated (ethtool --show-fec)
  gro INTEGER,               -- 1 if generic receive offload is on (ethtool -k)
  lro INTEGER,               -- 1 if large receive offload is on (ethtool -k)
  tso INTEGER,               -- 1 if TCP segmentation is offloaded (ethtool -k)
  rx_checksum INTEGER,       -- 1 if receive checksums are offloaded (ethtool -k)
  hw_tc_offload INTEGER,     -- 1 if flow rules are offloaded to hardware (ethtool -k)
  origin TEXT,               -- where the row was read
  UNIQUE (node, netdev)
);

-- Plugged modules and their light; lane 0 is the module itself. (ethtool -m: SFF-8636, CMIS, SFF-8472)
CREATE TABLE optics (
  node TEXT,                 -- node
  netdev TEXT,               -- interface name
  lane INTEGER,              -- lane, from 1; 0 for the whole module
  identifier TEXT,           -- kind of module: QSFP28, QSFP-DD, OSFP, SFP ... (byte 0)
  vendor TEXT,               -- vendor name
  part TEXT,                 -- vendor part number
  temperature_c REAL,        -- temperature of the module [degrees C]
  voltage_v REAL,            -- supply voltage of the module [V]
  rx_power_dbm REAL,         -- light received on the lane [dBm]; -40 for none
  tx_power_dbm REAL,         -- light sent on the lane [dBm]; -40 for none
  bias_ma REAL,              -- laser bias current of the lane [mA]
  alarms TEXT,               -- alarms, faults and lost signals that the module reports, comma separated; '' for none (lane 0)
  warnings TEXT,             -- warnings that it reports, comma separated; '' for none (lane 0)
  origin TEXT,               -- where the row was read
  UNIQUE (node, netdev, lane)
);

-- Quality of service of network devices. (DCB netlink, dcb, mlnx_qos, /sys/class/net/N/qos, /sys/class/net/N/ecn)
CREATE TABLE qos (
  node TEXT,                 -- node
  netdev TEXT,               -- interface name; '' where the text does not name it
  trust TEXT,                -- what sets a packet's priority: 'dscp', 'pcp' or 'both' (mlnx_qos, qos/trust, dcb apptrust)
  dcbx TEXT,                 -- who sets DCB up: 'os' or 'firmware' (mlnx_qos DCBX mode; dcb dcbx: host, lld_managed)
  lldpad INTEGER,            -- 1 if mlnx_qos warned that the daemon lldpad runs and may overwrite the settings
  pfc_cap INTEGER,           -- priorities that may have PFC at once [count] (dcb pfc)
  cable_length_m INTEGER,    -- cable length that headroom is made for [m] (mlnx_qos Cable len, dcb pfc delay on mlx5)
  buffer_total_bytes INTEGER, -- receive buffer in all [bytes] (dcb buffer total_size, mlnx_qos max_buffer_size)
  default_priority INTEGER,  -- priority of what no rule names (dcb app default-prio)
  cnp_dscp INTEGER,          -- DSCP of CNPs that are sent (ecn/roce_np/cnp_dscp, debugfs cc_params/np_cnp_dscp)
  cnp_priority INTEGER,      -- 802.1p priority of CNPs that are sent (ecn/roce_np/cnp_802p_prio, cc_params/np_cnp_prio)
  min_time_between_cnps_us INTEGER, -- shortest time between CNPs of a flow [us] (ecn/roce_np/min_time_between_cnps, cc_params)
  origin TEXT,               -- where the row was read
  UNIQUE (node, netdev)
);

-- The eight priorities of network devices. (dcb pfc, ets, buffer; mlnx_qos; /sys/class/net/N/ecn)
CREATE TABLE qos_priority (
  node TEXT,                 -- node
  netdev TEXT,               -- interface name; '' where the text does not name it
  priority INTEGER,          -- priority, 0 to 7
  pfc INTEGER,               -- 1 if PFC is on
  tc INTEGER,                -- traffic class that it is sent in (ETS prio-tc)
  buffer INTEGER,            -- receive buffer that it uses (prio-buffer)
  pfc_sent INTEGER,          -- PFC frames sent since boot [count] (ieee_pfc requests)
  pfc_received INTEGER,      -- PFC frames received since boot [count] (ieee_pfc indications)
  ecn_np INTEGER,            -- 1 if marks of this priority are answered with CNPs (ecn/roce_np/enable/P)
  ecn_rp INTEGER,            -- 1 if CNPs slow this priority down (ecn/roce_rp/enable/P)
  origin TEXT,               -- where the row was read
  UNIQUE (node, netdev, priority)
);

-- Which priority a DSCP has. (dcb app dscp-prio, mlnx_qos dscp2prio, /sys/class/net/N/qos/dscp2prio)
CREATE TABLE qos_dscp (
  node TEXT,                 -- node
  netdev TEXT,               -- interface name; '' where the text does not name it
  dscp INTEGER,              -- DSCP, 0 to 63
  priority INTEGER,          -- priority of packets that carry it
  origin TEXT,               -- where the row was read
  UNIQUE (node, netdev, dscp)
);

-- Traffic classes of network devices. (dcb ets, maxrate; mlnx_qos)
CREATE TABLE qos_tc (
  node TEXT,                 -- node
  netdev TEXT,               -- interface name; '' where the text does not name it
  tc INTEGER,                -- traffic class, 0 to 7
  tsa TEXT,                  -- how it is scheduled: strict, ets, cbs, vendor
  bandwidth_percent INTEGER, -- share of the bandwidth under ets [%]
  maxrate_bytes_per_second INTEGER, -- its limit [bytes/s]; 0 for none
  origin TEXT,               -- where the row was read
  UNIQUE (node, netdev, tc)
);

-- Receive buffers of network devices. (dcb buffer, mlnx_qos, /sys/class/net/N/qos/buffer_size)
CREATE TABLE qos_buffer (
  node TEXT,                 -- node
  netdev TEXT,               -- interface name; '' where the text does not name it
  buffer INTEGER,            -- buffer, 0 to 7
  size_bytes INTEGER,        -- size [bytes]
  origin TEXT,               -- where the row was read
  UNIQUE (node, netdev, buffer)
);

-- What marks RoCE traffic of a port. (/sys/class/infiniband/D/tc, configfs rdma_cm, cma_roce_mode, cma_roce_tos)
CREATE TABLE roce_setting (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  port INTEGER,              -- port number
  traffic_class INTEGER,     -- traffic class that the driver gives all QPs; -1 for none (tc/P/traffic_class, OFED)
  cm_roce_mode TEXT,         -- GID type that rdma_cm uses: 'IB/RoCE v1' or 'RoCE v2' (default_roce_mode)
  cm_roce_tos INTEGER,       -- type of service that rdma_cm sets by default, 0 to 255 (default_roce_tos)
  origin TEXT,               -- where the row was read
  UNIQUE (node, device, port)
);

-- Where network devices are cabled to. (lldpcli, networkctl lldp, /run/systemd/netif/lldp)
CREATE TABLE lldp (
  node TEXT,                 -- node
  netdev TEXT,               -- interface name
  switch TEXT,               -- name of the neighbour (SysName)
  switch_port TEXT,          -- its port (PortID)
  port_description TEXT,     -- description of that port (PortDescr)
  chassis TEXT,              -- chassis id of the neighbour
  management_ip TEXT,        -- its management address
  origin TEXT,               -- where the row was read
  UNIQUE (node, netdev, chassis)
);

-- Link-layer addresses of other hosts. (RTM_GETNEIGH, ip neigh)
CREATE TABLE neighbour (
  node TEXT,                 -- node
  netdev TEXT,               -- interface name
  address TEXT,              -- IP address
  lladdr TEXT,               -- link-layer address; NULL while it is not resolved
  state TEXT,                -- REACHABLE, STALE, DELAY, PROBE, FAILED, INCOMPLETE, PERMANENT, NOARP, NONE
  origin TEXT,               -- where the row was read
  UNIQUE (node, netdev, address)
);

-- Policy rules: which routing table is asked for what. (RTM_GETRULE, ip rule)
CREATE TABLE policy_rule (
  node TEXT,                 -- node
  family TEXT,               -- inet or inet6; NULL where the tool does not say
  priority INTEGER,          -- the lowest is asked first
  src TEXT,                  -- source prefix, 'all' for any
  dst TEXT,                  -- destination prefix; NULL for any
  iif TEXT,                  -- netdev that the packet came in by
  oif TEXT,                  -- netdev that the socket is bound to
  "table" TEXT,              -- routing table asked: main, local, or number
  action TEXT,               -- NULL for a look-up; blackhole, unreachable, prohibit ...
  origin TEXT                -- where the row was read
);

-- Bonds. (/sys/class/net/B/bonding, /proc/net/bonding)
CREATE TABLE bond (
  node TEXT,                 -- node
  netdev TEXT,               -- the bond
  mode TEXT,                 -- balance-rr, active-backup, balance-xor, broadcast, 802.3ad, balance-tlb, balance-alb
  xmit_hash_policy TEXT,     -- how flows are spread: layer2, layer3+4, layer2+3 ...
  active_slave TEXT,         -- active slave, of active-backup
  miimon_ms INTEGER,         -- how often links are looked at [ms]; 0 for never
  origin TEXT,               -- where the row was read
  UNIQUE (node, netdev)
);

-- Slaves of bonds. (/sys/class/net/N/bonding_slave, /proc/net/bonding)
CREATE TABLE bond_slave (
  node TEXT,                 -- node
  netdev TEXT,               -- the slave
  bond TEXT,                 -- its bond
  mii_status TEXT,           -- up or down, as the bond sees it
  link_failures INTEGER,     -- link failures since it joined [count]
  aggregator_id INTEGER,     -- LACP aggregator; slaves that carry traffic together have the same
  origin TEXT,               -- where the row was read
  UNIQUE (node, netdev)
);

-- How switches are set up, name by name. (SONiC: show pfc priority, show pfcwd config, show ecn; Cumulus: nv show ... qos roce)
CREATE TABLE switch_setting (
  node TEXT,                 -- the switch
  port TEXT,                 -- its port, or the name of a profile; '' for the whole switch
  name TEXT,                 -- pfc_priorities ('3,4'), pfc_rx, pfc_tx (on, off), pfcwd_action, pfcwd_detection_ms, pfcwd_restoration_ms, ecn ('on', 'off'), ecn_min_bytes, ecn_max_bytes, ecn_probability [%], ecn_tcs, trust, roce_mode, roce_state
  value TEXT,                -- value
  origin TEXT,               -- where the row was read
  UNIQUE (node, port, name)
);

-- Counters and watermarks of switches since they were cleared. (SONiC: show pfc counters, show pfcwd stats, show queue ..., show priority-group ..., show buffer_pool; Cumulus: nv show ... counters)
CREATE TABLE switch_counter (
  node TEXT,                 -- the switch
  port TEXT,                 -- its port, or the buffer pool
  priority INTEGER,          -- priority, queue or priority group; NULL for the whole port or pool
  name TEXT,                 -- pfc_received, pfc_sent, pfc_received_us, storms_detected, storms_restored, storm_tx_dropped, storm_rx_dropped, queue_dropped, pg_dropped, wred_dropped, ecn_marked, discarded, pool_watermark_bytes, queue_watermark_bytes, pg_watermark_bytes, headroom_watermark_bytes
  value INTEGER,             -- value [frames or packets, or the unit that the name ends in]
  text TEXT,                 -- state as printed, where there is one: operational, stormed
  origin TEXT                -- where the row was read
);

-- Connection identifiers of rdma_cm. (RES_CM_ID_GET, rdma -d -j res show cm_id)
CREATE TABLE cm_id (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  port INTEGER,              -- port number
  cm_idn INTEGER,            -- number of the identifier
  qpn INTEGER,               -- QP number
  qp_type TEXT,              -- RC, UD ...
  state TEXT,                -- IDLE, ADDR_RESOLVED, ROUTE_RESOLVED, CONNECT, DISCONNECT, LISTEN ...
  ps TEXT,                   -- port space: TCP, UDP, IPoIB
  src TEXT,                  -- own address and port
  dst TEXT,                  -- the peer's address and port
  pid INTEGER,               -- owner process id
  comm TEXT,                 -- owner's name; '[name]' for a kernel owner
  origin TEXT                -- where the row was read
);

-- Protection domains. (RES_PD_GET, rdma -d -j res show pd)
CREATE TABLE pd (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  pdn INTEGER,               -- number
  users INTEGER,             -- objects that use it [count]
  ctxn INTEGER,              -- context that it belongs to
  pid INTEGER,               -- owner process id
  comm TEXT,                 -- owner's name; '[name]' for a kernel owner
  origin TEXT                -- where the row was read
);

-- Contexts: one each time a process opened a device. (RES_CTX_GET, rdma -d -j res show ctx)
CREATE TABLE context (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  ctxn INTEGER,              -- number
  pid INTEGER,               -- owner process id
  comm TEXT,                 -- owner's name
  origin TEXT                -- where the row was read
);

-- Counters of sets that queue pairs are bound to. (STAT_GET, rdma -j statistic qp show)
CREATE TABLE qp_counter (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name
  port INTEGER,              -- port number
  cntn INTEGER,              -- number of the counter set
  qp_type TEXT,              -- type of the queue pairs bound to it, where it was bound by type
  qpns TEXT,                 -- their numbers, comma separated; the first 32
  pid INTEGER,               -- owner process id, where it was bound by process
  comm TEXT,                 -- owner's name
  counter TEXT,              -- name as the kernel spells it
  value INTEGER,             -- value [count] since the set was bound
  origin TEXT                -- where the row was read
);

-- PCI functions that matter: network, RDMA, GPU, NVMe, and the bridges above them. (/sys/bus/pci/devices, lspci)
CREATE TABLE pci (
  node TEXT,                 -- node
  bdf TEXT,                  -- domain:bus:device.function
  vendor_id INTEGER,         -- vendor id
  device_id INTEGER,         -- device id
  class INTEGER,             -- class code, 24 bit: 0x020000 Ethernet, 0x020700 InfiniBand, 0x0302xx 3D controller, 0x060400 bridge
  name TEXT,                 -- name as lspci prints it
  driver TEXT,               -- bound kernel driver, '' when none is bound
  role TEXT,                 -- 'rdma' (adapter family that can do RDMA), 'net', 'gpu', 'nvme', 'bridge', 'other'
  parent_bdf TEXT,           -- bridge above, NULL at the root
  numa_node INTEGER,         -- NUMA node, NULL where the kernel says -1
  current_speed_gts REAL,    -- link speed now [GT/s] (current_link_speed, LnkSta)
  max_speed_gts REAL,        -- link speed the device can do [GT/s] (max_link_speed, LnkCap)
  current_width INTEGER,     -- lanes now [count]
  max_width INTEGER,         -- lanes the device can do [count]
  downgraded INTEGER,        -- 1 where lspci says "(downgraded)" of speed or width, NULL where it does not (LnkSta)
  acs TEXT,                  -- ACS control flags that are on, as lspci names them, comma separated; '' all off (ACSCtl; config space, root)
  iommu_group INTEGER,       -- IOMMU group
  iommu_type TEXT,           -- DMA, DMA-FQ, identity; '' where no IOMMU is in use (iommu_group/type)
  bar1_bytes INTEGER,        -- size of the region by which peers reach GPU memory ("BAR1" of nvidia-smi), for GPUs [bytes] (resource)
  max_read_request_bytes INTEGER, -- MaxReadReq [bytes] (DevCtl)
  max_payload_bytes INTEGER, -- MaxPayload in use [bytes] (DevCtl)
  max_payload_supported_bytes INTEGER, -- MaxPayload that the function can do [bytes] (DevCap)
  relaxed_ordering INTEGER,  -- 1 if the function may send with relaxed ordering (DevCtl)
  physical_bdf TEXT,         -- of a virtual function its physical function (physfn)
  vfs INTEGER,               -- virtual functions that are made [count] (sriov_numvfs)
  max_vfs INTEGER,           -- virtual functions that can be made [count] (sriov_totalvfs)
  revision TEXT,             -- revision; ff when the function no longer answers
  origin TEXT,               -- where the row was read
  UNIQUE (node, bdf)
);

-- Kernel modules that are loaded or built in. (/proc/modules, lsmod, /sys/module)
CREATE TABLE module (
  node TEXT,                 -- node
  module TEXT,               -- name with underscores
  users INTEGER,             -- reference count
  used_by TEXT,              -- modules that use it, comma separated
  version TEXT,              -- version (/sys/module/M/version)
  builtin INTEGER,           -- 1 if built into the kernel, 0 if loaded
  origin TEXT,               -- where the row was read
  UNIQUE (node, module)
);

-- RDMA character devices. (/dev/infiniband)
CREATE TABLE chardev (
  node TEXT,                 -- node
  path TEXT,                 -- /dev/infiniband/uverbs0, rdma_cm, umad0 ...
  device TEXT,               -- verbs device, where known
  present INTEGER,           -- 1 if the file is there, 0 if it was looked for and is not
  accessible INTEGER,        -- 1 if we may open it for reading and writing, 0 if not, NULL unknown
  origin TEXT,               -- where the row was read
  UNIQUE (node, path)
);

-- Limits of processes. (/proc/PID/limits, ulimit, prlimit)
CREATE TABLE process_limit (
  node TEXT,                 -- node
  pid INTEGER,               -- process id; NULL for the shell or job that printed it
  comm TEXT,                 -- process name
  name TEXT,                 -- 'memlock', 'nofile', 'nproc', 'as', 'stack', 'core' ...
  soft INTEGER,              -- soft limit [bytes, or count]; -1 unlimited
  hard INTEGER,              -- hard limit [bytes, or count]; -1 unlimited
  origin TEXT                -- where the row was read
);

-- Processes that hold RDMA resources. (/proc/PID)
CREATE TABLE process (
  node TEXT,                 -- node
  pid INTEGER,               -- process id
  comm TEXT,                 -- process name
  uid INTEGER,               -- owner
  container TEXT,            -- container, pod or job of its cgroup, '' when none
  cgroup TEXT,               -- path of its control group (/proc/PID/cgroup)
  pod TEXT,                  -- Kubernetes pod uid of that path
  container_id TEXT,         -- container id of that path, first 12 digits
  job TEXT,                  -- Slurm job of that path
  state TEXT,                -- R running, S sleeping, D in the kernel, T stopped, t traced, Z dead (/proc/PID/status)
  ipc_lock INTEGER,          -- 1 if it may lock memory without limit: CAP_IPC_LOCK in the first user namespace (/proc/PID/status, uid_map)
  origin TEXT,               -- where the row was read
  UNIQUE (node, pid)
);

-- Environment variables that matter to RDMA programs. (/proc/PID/environ, env, container specifications)
CREATE TABLE env (
  node TEXT,                 -- node
  pid INTEGER,               -- process id, NULL for a pasted text
  name TEXT,                 -- NCCL_*, UCX_*, MC_*, NIXL_*, GLOO_*, PYTORCH_CUDA_ALLOC_CONF ...; secrets are never collected
  value TEXT,                -- value
  origin TEXT                -- where the row was read
);

-- Commands seen in pasted texts, with the options that choose device, port, GID or depth.
CREATE TABLE command (
  node TEXT,                 -- node
  program TEXT,              -- program name without path
  line TEXT,                 -- whole command line
  device TEXT,               -- RDMA device chosen (-d)
  port INTEGER,              -- port chosen (-i)
  gid_index INTEGER,         -- GID index chosen (ibv_*_pingpong -g, perftest -x)
  qps INTEGER,               -- number of QPs (perftest -q) [count]
  depth INTEGER,             -- send requests of one QP in flight (perftest -t) [count]
  iterations INTEGER,        -- requests of one QP in the whole run (perftest -n) [count]
  rdma_cm INTEGER,           -- 1 if it connects by rdma_cm (perftest -R, rping ...)
  origin TEXT                -- where the row was read
);

-- Errors of completions as programs print them, decoded. (logs of NCCL, UCX, Mooncake, NIXL, vLLM, SGLang, perftest, gloo, the kernel ...)
CREATE TABLE completion (
  node TEXT,                 -- node
  program TEXT,              -- nccl, ucx, mooncake, nixl, vllm, sglang, perftest, gloo, libmlx5, mlx5_ib ...
  pid INTEGER,               -- process id, where printed
  device TEXT,               -- local RDMA device, where printed
  port INTEGER,              -- local port, where printed
  qpn INTEGER,               -- local QP number, where printed
  peer TEXT,                 -- peer as printed: address, host or device
  peer_device TEXT,          -- peer's RDMA device, where printed
  wc_status INTEGER,         -- ibv_wc_status
  wc_name TEXT,              -- its name without IBV_WC_
  vendor_err INTEGER,        -- vendor syndrome (read in the base that this program prints)
  vendor_meaning TEXT,       -- what that syndrome means with that status
  opcode TEXT,               -- operation, where printed and meaningful
  local_gid TEXT,            -- local GID, where printed
  remote_gid TEXT,           -- remote GID, where printed
  completed INTEGER,         -- requests of the same run that had completed well before it, where printed (perftest's ccnt)
  flush INTEGER,             -- 1 for WR_FLUSH_ERR: a consequence, not a cause
  first INTEGER,             -- 1 for the first non-flush error of its node and program
  format TEXT,               -- which of the program's formats: tells its age ('nccl<2.21' ...)
  time TEXT,                 -- time as printed
  age_seconds REAL,          -- how long before the end of its log, or before now on a live node [s]
  recent INTEGER,            -- 1 within --since, NULL when it has no time; older rows are left out of a check
  text TEXT,                 -- the line
  origin TEXT                -- file:line
);

-- Log lines that a rule's patterns match; named groups of patterns fill the columns of the same name.
CREATE TABLE log (
  node TEXT,                 -- node
  log TEXT,                  -- 'kernel' or 'application'
  rule TEXT,                 -- rule whose pattern matched
  pattern INTEGER,           -- index of the pattern in the rule, from 0
  time TEXT,                 -- time as printed
  age_seconds REAL,          -- how long before the end of its log, or before now on a live node [s]
  recent INTEGER,            -- 1 within --since, 0 older, NULL when it has no time
  device TEXT,               -- RDMA device
  port INTEGER,              -- port number
  netdev TEXT,               -- network device
  bdf TEXT,                  -- PCI address
  qpn INTEGER,               -- QP number
  pid INTEGER,               -- process id
  comm TEXT,                 -- process name
  peer TEXT,                 -- peer
  peer_device TEXT,          -- peer's RDMA device
  gid TEXT,                  -- GID
  gid_index INTEGER,         -- GID index
  remote_gid TEXT,           -- the peer's GID
  length INTEGER,            -- length of a message or memory region [bytes]
  call TEXT,                 -- verb or library call that failed
  errno TEXT,                -- error text or number as printed
  syndrome TEXT,             -- device or firmware syndrome as printed
  status TEXT,               -- status as printed
  value TEXT,                -- what the pattern is about, where no other column fits
  expected TEXT,             -- what was wanted instead
  from_state TEXT,           -- queue pair state before the call, as verbs spell it
  to_state TEXT,             -- queue pair state that was asked for
  version TEXT,              -- version
  module TEXT,               -- kernel module
  program TEXT,              -- program that printed it
  text TEXT,                 -- the line
  origin TEXT                -- file:line
);

-- Matched lines that are recent or have no time: what rules read. Kernel log and application logs apart, so that gaps are too.
CREATE VIEW kernel_event AS SELECT * FROM log WHERE log = 'kernel' AND coalesce(recent, 1) = 1;
CREATE VIEW app_event AS SELECT * FROM log WHERE log = 'application' AND coalesce(recent, 1) = 1;

-- GPUs. (/proc/driver/nvidia, /sys/bus/pci/devices of amdgpu, /sys/class/kfd, nvidia-smi)
CREATE TABLE gpu (
  node TEXT,                 -- node
  bdf TEXT,                  -- PCI address
  gpu INTEGER,               -- index as nvidia-smi counts, in PCI order
  vendor TEXT,               -- 'nvidia', 'amd'
  name TEXT,                 -- product name
  architecture TEXT,         -- Volta, Turing, Ampere, Ada Lovelace, Hopper, Blackwell; gfx target of AMD (PCI id, nvidia-smi -q, kfd topology)
  compute_capability TEXT,   -- CUDA compute capability (PCI id, nvidia-smi --query-gpu=compute_cap)
  driver_version TEXT,       -- version of the kernel driver (/proc/driver/nvidia/version, /sys/module/amdgpu/version)
  flavour TEXT,              -- 'open' or 'proprietary' NVIDIA kernel modules (/proc/driver/nvidia/version)
  persistence INTEGER,       -- 1 if persistence mode is on (nvidia-smi)
  memory_bytes INTEGER,      -- GPU memory [bytes] (nvidia-smi, mem_info_vram_total)
  bar1_bytes INTEGER,        -- window by which peers reach it [bytes] (nvidia-smi -q "BAR1 Memory Usage", mem_info_vis_vram_total)
  bar1_used_bytes INTEGER,   -- of it in use [bytes]
  virtualization TEXT,       -- GPU Virtualization Mode: 'None', 'Pass-Through', 'VGPU' ... (nvidia-smi -q)
  origin TEXT,               -- where the row was read
  UNIQUE (node, bdf)
);

-- Paths between GPUs and RDMA devices as the GPU driver reports them. (nvidia-smi topo -m)
CREATE TABLE gpu_path (
  node TEXT,                 -- node
  gpu INTEGER,               -- index of the GPU
  device TEXT,               -- verbs device name
  path TEXT,                 -- PIX, PXB, PHB, NODE, SYS
  origin TEXT,               -- where the row was read
  UNIQUE (node, gpu, device)
);

-- GPUs and RDMA devices paired: one row each pair, with the way between them. (nvidia-smi topo -m, else the PCI tree and NUMA nodes)
CREATE TABLE gpu_nic (
  node TEXT,                 -- node
  gpu INTEGER,               -- index of the GPU in PCI order
  gpu_bdf TEXT,              -- its PCI address
  device TEXT,               -- verbs device name
  bdf TEXT,                  -- PCI address of the RDMA device
  netdev TEXT,               -- its netdev
  path TEXT,                 -- PIX one switch, PXB several switches, PHB one host bridge, NODE one NUMA node, SYS between NUMA nodes; NULL unknown
  nearest INTEGER,           -- 1 if no other RDMA device is nearer to this GPU
  rail INTEGER,              -- number of the RDMA device among those that serve GPUs (of each GPU's nearest the fastest), from 0 in PCI order; NULL for others
  origin TEXT                -- where the path was read
);

-- Parameters of kernel modules. (/sys/module/M/parameters, /etc/modprobe.d, /lib/modprobe.d, kernel command line, /proc/driver/nvidia/params)
CREATE TABLE module_parameter (
  node TEXT,                 -- node
  module TEXT,               -- module, with underscores
  parameter TEXT,            -- parameter; those of nvidia without NVreg_
  value TEXT,                -- value in use
  configured TEXT,           -- value that modprobe.d or the kernel command line asks for
  origin TEXT,               -- where the row was read
  UNIQUE (node, module, parameter)
);

-- Kernel settings. (/proc/sys, sysctl)
CREATE TABLE sysctl (
  node TEXT,                 -- node
  name TEXT,                 -- name with dots: vm.max_map_count
  value TEXT,                -- value as printed
  origin TEXT,               -- where the row was read
  UNIQUE (node, name)
);

-- How processors change their frequency: one row a policy that differs. (/sys/devices/system/cpu/cpu*/cpufreq)
CREATE TABLE cpu_governor (
  node TEXT,                 -- node
  driver TEXT,               -- intel_pstate, intel_cpufreq, acpi-cpufreq, amd-pstate-epp ... (scaling_driver)
  governor TEXT,             -- performance, powersave, schedutil, ondemand ... (scaling_governor)
  preference TEXT,           -- energy_performance_preference, where the driver has it
  cpus INTEGER,              -- processors with it [count]
  origin TEXT,               -- where the row was read
  UNIQUE (node, driver, governor, preference)
);

-- Idle states of the first processor. (/sys/devices/system/cpu/cpu0/cpuidle)
CREATE TABLE idle_state (
  node TEXT,                 -- node
  state TEXT,                -- POLL, C1, C1E, C6 ... (name)
  latency_microseconds INTEGER, -- time to wake up from it [us] (latency)
  disabled INTEGER,          -- 1 if switched off (disable)
  origin TEXT,               -- where the row was read
  UNIQUE (node, state)
);

-- Huge pages by size. (/sys/kernel/mm/hugepages, /proc/meminfo)
CREATE TABLE hugepage (
  node TEXT,                 -- node
  size_bytes INTEGER,        -- size of one page [bytes]
  total INTEGER,             -- pages [count]
  free INTEGER,              -- pages that nobody uses [count]
  reserved INTEGER,          -- free pages that are promised [count]
  origin TEXT,               -- where the row was read
  UNIQUE (node, size_bytes)
);

-- Interrupts of RDMA adapters. (/sys/bus/pci/devices/D/msi_irqs, /proc/irq, /proc/interrupts)
CREATE TABLE irq (
  node TEXT,                 -- node
  irq INTEGER,               -- number
  bdf TEXT,                  -- PCI function
  name TEXT,                 -- mlx5_comp0@pci:0000:18:00.0 ... (/proc/irq/N, /proc/interrupts)
  completion INTEGER,        -- 1 if it serves completions, 0 if commands and events (from the name)
  cpus TEXT,                 -- processors that may take it, as a list (smp_affinity_list)
  effective_cpus TEXT,       -- processors that do take it (effective_affinity_list)
  local INTEGER,             -- 1 if one of those is on the adapter's NUMA node, 0 if none (local_cpulist)
  count INTEGER,             -- times it came since boot [count] (/proc/interrupts)
  busiest_cpu INTEGER,       -- processor that took most of them (/proc/interrupts)
  origin TEXT,               -- where the row was read
  UNIQUE (node, irq)
);

-- Services that bear on RDMA and run here. (/proc/PID/comm, /proc/PID/limits)
CREATE TABLE service (
  node TEXT,                 -- node
  service TEXT,              -- irqbalance, tuned, lldpad, nvidia-persistenced, containerd, dockerd, crio, kubelet, slurmd, opensm ...
  running INTEGER,           -- 1 if it runs, 0 if all processes were looked at and it does not
  pid INTEGER,               -- process id
  memlock_bytes INTEGER,     -- soft limit of locked memory, which its children inherit [bytes]; -1 unlimited
  origin TEXT,               -- where the row was read
  UNIQUE (node, service)
);

-- Limits of RDMA objects by control group. (rdma.max, rdma.current below /sys/fs/cgroup)
CREATE TABLE cgroup_rdma (
  node TEXT,                 -- node
  cgroup TEXT,               -- path of the group
  device TEXT,               -- verbs device name
  kind TEXT,                 -- hca_handle (open contexts), hca_object (QPs, CQs, MRs ... together)
  most INTEGER,              -- limit [count]; -1 none
  current INTEGER,           -- in use [count]
  origin TEXT,               -- where the row was read
  UNIQUE (node, cgroup, device, kind)
);

-- What the control groups of RDMA processes may use, and how long they waited for it; one row a group of cgroup v2. (/sys/fs/cgroup, Documentation/admin-guide/cgroup-v2.rst)
CREATE TABLE cgroup_use (
  node TEXT,                 -- node
  cgroup TEXT,               -- path of the group
  cpu_most REAL,             -- processors that it may use [count]; -1 no limit (cpu.max)
  periods INTEGER,           -- periods in which it ran, since it was made [count] (cpu.stat nr_periods)
  throttled INTEGER,         -- of those: in which it had used up its time [count] (cpu.stat nr_throttled)
  memory_high_bytes INTEGER, -- memory above which it is slowed [bytes]; -1 no limit (memory.high)
  memory_max_bytes INTEGER,  -- memory that it may use at most [bytes]; -1 no limit (memory.max)
  memory_bytes INTEGER,      -- memory that it uses [bytes] (memory.current)
  memory_high_events INTEGER, -- times that it was slowed for being above the first, since it was made [count] (memory.events high)
  memory_max_events INTEGER, -- times that it was about to go beyond the second [count] (memory.events max)
  cpu_some_share REAL,       -- share of the last 10 s in which some of its processes waited for a processor (cpu.pressure)
  cpu_full_share REAL,       -- share in which all that had work did; throttled ones do
  memory_some_share REAL,    -- share in which some waited for memory (memory.pressure)
  memory_full_share REAL,    -- share in which all did
  origin TEXT,               -- folder
  UNIQUE (node, cgroup)
);

-- What the host's packet filter does with RoCE v2 packets (UDP 4791): one row a chain that packets enter. (nft -j list ruleset, iptables-save, ufw status)
CREATE TABLE firewall (
  node TEXT,                 -- node
  tool TEXT,                 -- nft, iptables, ufw
  family TEXT,               -- ip, ip6, inet, netdev
  chain TEXT,                -- table and chain: filter INPUT
  hook TEXT,                 -- input, output, prerouting, postrouting, ingress
  verdict TEXT,              -- accept, drop, reject; NULL where it depends on more than protocol and port
  rule TEXT,                 -- the rule that decides, or 'policy'
  netdev TEXT,               -- only for packets that come in or go out by it; NULL for all packets
  origin TEXT                -- where the row was read
);

-- Which versions go together: data of rdmadiag, not of a node. (rdmadiag/explain/_requirements.py)
CREATE TABLE requirement (
  feature TEXT,              -- dmabuf, peermem, start (of a GPU), firmware line
  subject TEXT,              -- RDMA driver, GPU architecture, PCI device id, or '*'
  component TEXT,            -- kernel, rdma_core, gpu_driver, firmware
  least INTEGER,             -- at least this version: kernel and rdma-core major * 1000 + minor, else the first number
  source TEXT,               -- where that is from
  UNIQUE (feature, subject, component)
);

-- Names of adapters in the firmware tools. (mst status -v)
CREATE TABLE mst (
  node TEXT,                 -- node
  mst TEXT,                  -- name in the firmware tools (/dev/mst/mt4129_pciconf0)
  bdf TEXT,                  -- PCI address
  device TEXT,               -- verbs device name
  netdev TEXT,               -- netdev
  origin TEXT,               -- where the row was read
  UNIQUE (node, mst)
);

-- The physical link as the adapter's firmware sees it. (mlxlink, mstlink; -m module, -c counters, --show_histogram)
CREATE TABLE link (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name, where given or known by mst or bdf
  bdf TEXT,                  -- PCI address, where given or known
  mst TEXT,                  -- name in the firmware tools, where given
  state TEXT,                -- Active, Polling, Disable ... as printed
  phys_state TEXT,           -- LinkUp, ETH_AN_FSM_ENABLE ... as printed
  speed TEXT,                -- speed as printed: IB-NDR, 400G
  width INTEGER,             -- lanes in use [count]
  fec TEXT,                  -- forward error correction as printed
  raw_ber REAL,              -- bit error rate before FEC [errors per bit]
  effective_ber REAL,        -- bit error rate after FEC [errors per bit]; mlxlink's 15E-255 (no error yet) is 0
  symbol_ber REAL,           -- symbol error rate after all correction, InfiniBand [errors per bit]
  effective_errors INTEGER,  -- errors left after FEC since the counters were cleared [count]
  symbol_errors INTEGER,     -- symbol errors since then, InfiniBand [count]
  link_down INTEGER,         -- times the link went down since then [count]
  link_recoveries INTEGER,   -- times it recovered by itself since then [count]
  minutes REAL,              -- time since the counters were cleared [min]
  status_opcode INTEGER,     -- what the firmware thinks is wrong: 0 nothing
  recommendation TEXT,       -- its words for that
  cable TEXT,                -- kind of cable or module (Cable Type, Identifier)
  vendor TEXT,               -- vendor of the cable or module
  part_number TEXT,          -- its part number
  temperature_celsius REAL,  -- temperature of the module [degrees Celsius]; NULL where it has no sensor
  faults TEXT,               -- flags that the module raises (Tx Fault, Rx LOS ...), comma separated; '' none, NULL not printed
  out_of_range TEXT,         -- readings of the module outside its own limits, comma separated; '' none, NULL not printed
  fec_bins INTEGER,          -- bins of the histogram of corrected symbols per codeword [count]
  fec_highest_bin INTEGER,   -- highest bin that is not empty; the last one is next to uncorrectable
  origin TEXT                -- where the row was read
);

-- Settings that the adapter's firmware keeps. (mlxconfig query, mstconfig query)
CREATE TABLE fw_setting (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name, where given or known by mst or bdf
  bdf TEXT,                  -- PCI address, where given or known
  mst TEXT,                  -- name in the firmware tools, where given
  setting TEXT,              -- name: LINK_TYPE_P1, PCI_WR_ORDERING ...
  value TEXT,                -- value in force, as printed; NULL where only that of the next boot was asked for
  number INTEGER,            -- its number
  next_value TEXT,           -- value from the next boot on, as printed
  next_number INTEGER,       -- its number
  default_value TEXT,        -- value that the maker set, as printed
  default_number INTEGER,    -- its number
  origin TEXT                -- where the row was read
);

-- Firmware images of adapters. (flint query, mstflint query, mlxfwmanager)
CREATE TABLE fw_image (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name, where known by mst or bdf
  bdf TEXT,                  -- PCI address, where given
  mst TEXT,                  -- name in the firmware tools, where given
  part_number TEXT,          -- part number of the board
  board_id TEXT,             -- board id (PSID)
  fw_ver TEXT,               -- version in the flash
  running TEXT,              -- version that runs, where it is another one
  available TEXT,            -- version that the tool offers
  status TEXT,               -- what mlxfwmanager says of it
  origin TEXT                -- where the row was read
);

-- Packages of user space and drivers. (dpkg -l, rpm -qa, ofed_info -s)
CREATE TABLE package (
  node TEXT,                 -- node
  package TEXT,              -- name without architecture; MLNX_OFED_LINUX, OFED-internal, DOCA for what ofed_info names
  version TEXT,              -- version with the packager's release
  manager TEXT,              -- dpkg, rpm, ofed_info
  state TEXT,                -- dpkg's two letters (ii installed, rc removed ...)
  origin TEXT,               -- where the row was read
  UNIQUE (node, package)
);

-- Which firmware each driver release was published with. (rdmadiag/explain/_fw_releases.py)
CREATE TABLE fw_release (
  release TEXT,              -- driver release: first two numbers of the mlx5_core version (25.07)
  vendor_part_id INTEGER,    -- part id of the adapter
  fw_ver TEXT,               -- firmware version
  source TEXT,               -- where that was published
  UNIQUE (release, vendor_part_id)
);

-- Results of tests: one row a size and test. (perftest, nccl-tests, rccl-tests, ibv_*_pingpong, rping, ibping, fio)
CREATE TABLE benchmark (
  node TEXT,                 -- node
  program TEXT,              -- perftest, nccl-tests, pingpong, rping, ibping, fio
  test TEXT,                 -- what was measured, as the tool names it: RDMA_Write BW, all_reduce, read ...
  device TEXT,               -- verbs device name, where printed
  port INTEGER,              -- port, where printed
  link_layer TEXT,           -- 'InfiniBand' or 'Ethernet', where printed
  gid_index INTEGER,         -- GID index, where printed
  mtu INTEGER,               -- RDMA MTU, where printed [bytes]
  qps INTEGER,               -- queue pairs [count]
  bidirectional INTEGER,     -- 1 when both directions are added up
  ranks INTEGER,             -- ranks of a collective [count]
  hosts INTEGER,             -- hosts of a collective [count]; 1: nothing crossed the network
  size_bytes INTEGER,        -- message (block) size [bytes]
  iterations INTEGER,        -- iterations [count]
  bandwidth_gbps REAL,       -- average bandwidth, of collectives the bus bandwidth [Gbit/s]
  peak_gbps REAL,            -- peak bandwidth; NULL when not measured [Gbit/s]
  latency_us REAL,           -- typical (else average) latency [microseconds]
  latency_p99_us REAL,       -- 99th percentile [microseconds]
  latency_max_us REAL,       -- highest [microseconds]
  sent INTEGER,              -- packets sent (ibping) [count]
  received INTEGER,          -- packets received (ibping) [count]
  errors INTEGER,            -- wrong elements of a collective, error number of a fio job [count]
  origin TEXT                -- where the row was read
);

-- What libfabric offers to programs. (fi_info)
CREATE TABLE fabric_provider (
  node TEXT,                 -- node
  provider TEXT,             -- verbs;ofi_rxm, efa, tcp, shm ... as printed
  domain TEXT,               -- device or interface
  fabric TEXT,               -- network
  type TEXT,                 -- FI_EP_MSG, FI_EP_RDM, FI_EP_DGRAM
  protocol TEXT,             -- protocol
  origin TEXT                -- where the row was read
);

-- Registers of an adapter, field by field. (mlxreg, mstreg)
CREATE TABLE register (
  node TEXT,                 -- node
  device TEXT,               -- verbs device name, where given or known by mst or bdf
  bdf TEXT,                  -- PCI address, where given or known
  mst TEXT,                  -- name in the firmware tools, where given
  register TEXT,             -- register asked for (ROCE_ACCEL), where the prompt line names it
  field TEXT,                -- field as printed
  value INTEGER,             -- its value
  origin TEXT                -- where the row was read
);

-- Runs of KV-cache transfers: one row a run of `rdmadiag kv`, as the side that connects saw it. (result file, record transfer)
CREATE TABLE kv_transfer (
  node TEXT,                 -- node
  run TEXT,                  -- name of the run (made by the run)
  mode TEXT,                 -- push, push_imm, pull; dual: blocks of a store by two paths
  peer TEXT,                 -- peer's address and port (control channel)
  path TEXT,                 -- route that the run began with
  kind TEXT,                 -- what that route is: rdma, tcp
  piece_bytes INTEGER,       -- bytes of a block in one plane [bytes] (shape)
  planes INTEGER,            -- planes: layers, times two where K and V lie apart [count] (shape)
  requests INTEGER,          -- requests moved [count]
  failed INTEGER,            -- requests that ended without being published [count]
  published INTEGER,         -- publications at the consumer [count] (ledger)
  duplicates INTEGER,        -- dones that came again and were dropped [count] (ledger)
  late_dones INTEGER,        -- dones that came too late and were dropped [count] (ledger)
  retries INTEGER,           -- times that a request was tried again [count]
  reconnects INTEGER,        -- times that QPs were replaced [count]
  posted_bytes INTEGER,      -- payload posted [bytes]
  resent_bytes INTEGER,      -- payload posted again [bytes]
  useful_bytes INTEGER,      -- payload of published requests [bytes]
  acknowledged_bytes INTEGER, -- payload of completed work requests [bytes]
  seconds REAL,              -- time of the run [s]
  busy_seconds REAL,         -- time in which a request was under way [s]
  bytes_per_second REAL,     -- acknowledged_bytes / busy_seconds [bytes/s]
  canaries_damaged INTEGER,  -- pieces between requests that were written over, NULL when not looked at [count] (compared byte by byte)
  late_written INTEGER,      -- pieces written after their lease had ended, NULL when not looked at [count] (compared byte by byte)
  leases_expired INTEGER,    -- leases that ran out [count] (peer)
  unfenced_reuses INTEGER,   -- slots lent again without a fence [count] (peer)
  origin TEXT                -- file:line
);

-- Requests of such runs. States of pieces come from comparing every byte with what it should be; NULL where that was not done. (record request)
CREATE TABLE kv_request (
  node TEXT,                 -- node
  run TEXT,                  -- run
  request INTEGER,           -- number of the request
  version INTEGER,           -- version of its content
  path TEXT,                 -- route that it ended on
  state TEXT,                -- published, failed
  why TEXT,                  -- why it failed
  seconds REAL,              -- time from asking for slots to the publication [s]
  moving_seconds REAL,       -- part of it in which its work requests were under way [s]
  bytes INTEGER,             -- its payload [bytes]
  blocks INTEGER,            -- blocks of tokens [count]
  retries INTEGER,           -- times that it was tried again [count]
  resent_bytes INTEGER,      -- payload posted again [bytes]
  publications INTEGER,      -- times that it was published [count]
  early_pieces INTEGER,      -- pieces that were not there when it was published, NULL when the consumer does not tell [count]
  damaged_on_arrival INTEGER, -- pieces that were acknowledged and not right at first [count] (CRC)
  corrupt INTEGER,           -- pieces with bytes of nobody after publication [count]
  stale INTEGER,             -- pieces of an older version or incarnation [count]
  missing INTEGER,           -- pieces that nothing was written to [count]
  torn INTEGER,              -- pieces made of several owners' cells [count]
  misplaced INTEGER,         -- pieces of another block or request [count]
  origin TEXT                -- file:line
);

-- Work requests of such runs, by path, operation and status. (record operation)
CREATE TABLE kv_operation (
  node TEXT,                 -- node
  run TEXT,                  -- run
  path TEXT,                 -- route
  op TEXT,                   -- RDMA_WRITE, RDMA_WRITE_WITH_IMM, RDMA_READ; STORE_READ for the block store
  status TEXT,               -- ibv_wc_status without IBV_WC_, or SOFTWARE_DEADLINE (on TCP: what an RDMA transport would say)
  operations INTEGER,        -- work requests [count]
  bytes INTEGER,             -- their payload [bytes]
  p50_seconds REAL,          -- median time from posting to completion [s]
  p99_seconds REAL,          -- 99th percentile of it [s]
  max_seconds REAL,          -- longest [s]
  depth_mean REAL,           -- requests outstanding when one completed, mean [count]
  depth_max INTEGER,         -- the same, most [count]
  origin TEXT                -- file:line
);

-- Payload that arrived in each 100 ms of such runs. (record goodput)
CREATE TABLE kv_goodput (
  node TEXT,                 -- node
  run TEXT,                  -- run
  start_seconds REAL,        -- beginning of the bin, from the beginning of the run [s]
  bytes INTEGER,             -- payload completed in it [bytes]
  busy_seconds REAL,         -- part of it in which a request was under way [s]
  phase TEXT,                -- before, during, after the fault; NULL where no fault was noted
  origin TEXT                -- file:line
);

-- What happened once in such runs. (record event)
CREATE TABLE kv_event (
  node TEXT,                 -- node
  run TEXT,                  -- run
  event TEXT,                -- begin (one a run), detected (a failed status), reconnect (begun after it), moved (another device), fallback (another kind of path), back (a better path that was left before), not_connected (a path could not be connected), session (another session, the control channel was gone), peer_gone (nobody took one), resend, fault, fault_removed, demoted, probation, returned, preempted
  seconds REAL,              -- when, from the beginning of the run [s]
  request INTEGER,           -- request
  status TEXT,               -- status that led to it, as kv_operation.status
  path TEXT,                 -- route in use
  to_path TEXT,              -- route taken instead
  blames_path INTEGER,       -- 1 where the status speaks against the path, 0 where it does not
  reason TEXT,               -- why
  origin TEXT                -- file:line
);

-- Routes that such runs used, and what their devices' own counters say went over them. (record route; rdmadiag workload run)
CREATE TABLE kv_route (
  node TEXT,                 -- node
  run TEXT,                  -- run
  path TEXT,                 -- route
  kind TEXT,                 -- rdma, tcp
  device TEXT,               -- RDMA device of the connecting side; the netdev that TCP was bound to
  peer_device TEXT,          -- RDMA device of the listening side
  same_device INTEGER,       -- 1 where that is the same device of the same machine, 0 where not
  path_mtu INTEGER,          -- path MTU [bytes]
  qpns TEXT,                 -- QPs of the connecting side, one after the other, with those that replaced them
  connections INTEGER,       -- times that it was connected [count]
  acknowledged_bytes INTEGER, -- payload of work requests that completed on it [bytes]
  read_bytes INTEGER,        -- that of READs among them: it came in [bytes]
  packets_sent INTEGER,      -- packets that the device sent meanwhile, whoever sent them; NULL where the driver does not count them [count] (hw_counters, counters, statistics)
  packets_received INTEGER,  -- packets that it received [count]
  wire_bytes_sent INTEGER,   -- bytes that it sent; NULL on rxe, which counts packets only [bytes]
  wire_bytes_received INTEGER, -- bytes that it received [bytes]
  origin TEXT                -- file:line
);

-- The paths of a dual-path run, and how they were. (record path)
CREATE TABLE kv_path (
  node TEXT,                 -- node
  run TEXT,                  -- run
  path TEXT,                 -- route
  kind TEXT,                 -- rdma, tcp
  state TEXT,                -- at the end of the run: healthy, demoted, probation
  probes INTEGER,            -- times that it was asked, between two jobs [count] (empty WRITE)
  probes_failed INTEGER,     -- of those, without an answer [count]
  rtt_p50_seconds REAL,      -- median round trip of the others, posting and completion included [s]
  rtt_p99_seconds REAL,      -- 99th percentile of it [s]
  expected_bytes_per_second REAL, -- the most that the run expected of it [bytes/s] (--path-rates)
  bytes_per_second REAL,     -- payload per time in which a chunk was under way [bytes/s]
  bytes INTEGER,             -- payload of whole chunks [bytes]
  jobs INTEGER,              -- jobs that ended on it [count]
  jobs_failed INTEGER,       -- times that a job failed on it and went on elsewhere [count]
  preempted INTEGER,         -- times that a job gave way to one of a higher priority [count]
  demotions INTEGER,         -- times that it was left [count]
  away_seconds REAL,         -- time between being left and being healthy again [s]
  queue_max INTEGER,         -- most jobs that waited on it [count]
  origin TEXT                -- file:line
);

-- Jobs of a dual-path run, by what they were and the path on which they ended. (record job)
CREATE TABLE kv_job (
  node TEXT,                 -- node
  run TEXT,                  -- run
  kind TEXT,                 -- control, data
  priority INTEGER,          -- higher goes first
  size TEXT,                 -- small (at most 16 KiB), bulk
  path TEXT,                 -- route
  jobs INTEGER,              -- how many [count]
  bytes INTEGER,             -- their payload [bytes]
  waited_p50_seconds REAL,   -- median time from the order to the beginning [s]
  waited_max_seconds REAL,   -- longest [s]
  took_p50_seconds REAL,     -- median time from the beginning to the end, with what went before it in between [s]
  origin TEXT                -- file:line
);

-- Tiers of a block store. (record cache)
CREATE TABLE kv_cache (
  node TEXT,                 -- node
  run TEXT,                  -- run
  tier TEXT,                 -- memory, file
  capacity_blocks INTEGER,   -- blocks that it may hold [count]
  lookups INTEGER,           -- blocks asked for [count]
  hits INTEGER,              -- found in this tier [count]
  reusable INTEGER,          -- asked for before, so that an unlimited cache would have had them [count]
  evictions INTEGER,         -- blocks put out [count]
  refused INTEGER,           -- blocks not taken because all others were pinned or leased [count]
  promotions INTEGER,        -- blocks that went up from this tier [count]
  damaged INTEGER,           -- blocks that were not right when they were to go up, and were thrown away [count] (CRC)
  origin TEXT                -- file:line
);

-- Packet captures, one row a file; frames are numbered from 1 as Wireshark numbers them. (rdmadiag/roce, from pcap and pcapng files)
CREATE TABLE capture (
  node TEXT,                 -- node, or the file's name where none is given
  file TEXT,                 -- path
  kind TEXT,                 -- 'pcap, us', 'pcap, ns' or 'pcapng'
  links TEXT,                -- link types
  snaplen INTEGER,           -- longest part of a packet that was kept [bytes]
  packets INTEGER,           -- packets [count]
  roce2 INTEGER,             -- RoCEv2 packets [count]
  roce1 INTEGER,             -- RoCEv1 packets: decoded, not analysed [count]
  native_ib INTEGER,         -- packets with an LRH (ERF, InfiniBand link type): not analysed [count]
  fragments INTEGER,         -- IP fragments: not analysed [count]
  undecoded INTEGER,         -- packets cut off in their headers, or whose lengths cannot be [count]
  other TEXT,                -- what the other packets are, with counts
  apart_frames TEXT,         -- the first frames of RoCEv1, native InfiniBand, fragments and undecoded packets
  cut INTEGER,               -- packets kept only in part [count]
  seconds REAL,              -- from the first RoCE packet to the last [s]
  start REAL,                -- time of the first RoCE packet [s since 1970]
  dropped INTEGER,           -- packets that the capturing interface lost [count] (pcapng isb_ifdrop, isb_osdrop); NULL where the file does not say
  duplicates INTEGER,        -- packets that a mirror delivered twice, taken out [count]
  duplicate_frames TEXT,     -- the first frames of these
  possible_duplicates INTEGER, -- equal packets of senders that leave the IP ID constant (or use IPv6), not taken out [count]
  icrc_good INTEGER,         -- packets whose ICRC is right [count]
  icrc_bad INTEGER,          -- packets whose ICRC is wrong [count]
  icrc_never_good INTEGER,   -- those of them whose sender has no packet with a right one in this capture [count]
  icrc_unchecked INTEGER,    -- packets that are cut: their ICRC cannot be checked [count]
  icrc_bad_frames TEXT,      -- the first frames of these
  malformed INTEGER,         -- packets whose lengths contradict their headers [count]
  malformed_frames TEXT,     -- the first frames of these
  unknown_opcodes TEXT,      -- reserved opcodes seen
  unknown_opcode_frames TEXT, -- one frame of each
  bad_tver_frames TEXT,      -- frames whose BTH transport version is not 0
  request_streams INTEGER,   -- streams of requests [count]
  answer_streams INTEGER,    -- streams of answers [count]
  unpaired_answers INTEGER,  -- streams of answers whose requests are not known [count]
  cnps INTEGER,              -- congestion notification packets [count]
  datagrams INTEGER,         -- UD packets [count]
  request_sports INTEGER,    -- different UDP source ports of streams of requests [count]
  partial TEXT,              -- what was left out; NULL when nothing was
  cannot_show TEXT,          -- what no finding about this capture can tell: each says so
  origin TEXT,               -- path
  UNIQUE (node, file)
);

-- Flows of a capture: the requests of one QP to another, with the answers to them. The BTH names no source QP: `pairing` says how the answers were found.
CREATE TABLE flow (
  node TEXT,                 -- node, or the file's name where none is given
  flow INTEGER,              -- number of the flow in its file
  src TEXT,                  -- requester's address
  dst TEXT,                  -- responder's address
  qpn INTEGER,               -- responder's QP number (DestQP of the requests)
  peer_qpn INTEGER,          -- requester's QP number (DestQP of the answers)
  life INTEGER,              -- 0; more where the same QP number was used again
  pairing TEXT,              -- 'CM handshake', 'PSN echo', 'user' (--pair) or 'not paired'
  confidence TEXT,           -- certain, high, medium, none
  answers_seen INTEGER,      -- 1 answers are paired; 0 none is, though packets of that direction are captured; NULL that direction is not captured
  transport TEXT,            -- 'RC or XRC' or 'UC'
  packets INTEGER,           -- requests [count]
  payload_bytes INTEGER,     -- payload of requests [bytes]
  fresh_bytes INTEGER,       -- the same without repeats [bytes]
  messages INTEGER,          -- messages sent to their end [count]
  sends INTEGER,             -- SENDs [count]
  writes INTEGER,            -- RDMA WRITEs [count]
  reads INTEGER,             -- RDMA READs [count]
  atomics INTEGER,           -- atomics [count]
  flushs INTEGER,            -- FLUSHes [count]
  atomic_writes INTEGER,     -- ATOMIC WRITEs [count]
  first_frame INTEGER,       -- first frame
  last_frame INTEGER,        -- last frame
  start_seconds REAL,        -- when it began, from the start of the capture [s]
  seconds REAL,              -- from its first request to its last [s]
  goodput_gbps REAL,         -- payload without repeats [Gb/s]
  throughput_gbps REAL,      -- payload with repeats [Gb/s]
  messages_per_second REAL,  -- messages sent to their end [1/s]
  latencies INTEGER,         -- requests whose answer was found [count]
  ack_us_p50 REAL,           -- request to answer, median [us]
  ack_us_p99 REAL,           -- request to answer, 99th percentile [us]
  ack_us_max REAL,           -- request to answer, longest [us]
  message_us_p50 REAL,       -- start of a message to its answer, median [us]
  message_us_p99 REAL,       -- start of a message to its answer, 99th percentile [us]
  message_us_max REAL,       -- start of a message to its answer, longest [us]
  in_flight_most INTEGER,    -- most PSNs that were sent and not yet acknowledged [count]
  open_psns INTEGER,         -- PSNs that were not acknowledged when the capture ended [count]
  state TEXT,                -- idle, in progress, resending, waits for a receive, dead after a fatal NAK, retries exhausted, resends without end, RNR retries exhausted, RNR without end, no answer, READ unanswered, no credits (idle, or starved), unreliable, answers not in the capture
  silent_seconds REAL,       -- from its last packet to the end of the capture [s]
  sends_of_one INTEGER,      -- most sends of one request [count]
  resends INTEGER,           -- episodes of resending [count]
  resent_packets INTEGER,    -- packets sent again [count]
  resent_bytes INTEGER,      -- payload sent again [bytes]
  resends_after_nak INTEGER, -- episodes that a NAK 60 asked for [count]
  resends_after_rnr INTEGER, -- episodes that an RNR NAK asked for [count]
  resends_timeout INTEGER,   -- episodes after a timeout [count]
  resends_read_rerequest INTEGER, -- READs that asked again for the rest of their data [count]
  resends_answer_lost INTEGER, -- episodes though the answer had passed the tap [count]
  resends_after_fatal INTEGER, -- episodes after a NAK that ends the QP [count]
  resends_unexplained INTEGER, -- episodes of no known cause [count]
  holes_reordered INTEGER,   -- PSNs that came late, without a NAK [count]
  holes_lost_before_tap INTEGER, -- PSNs that were lost before the tap and sent again [count]
  holes_capture_loss INTEGER, -- PSNs that were acknowledged but are not in the capture [count]
  holes_open INTEGER,        -- PSNs that were passed over and never seen [count]
  lost_request_before_tap INTEGER, -- episodes whose request was lost between requester and tap [count]
  lost_request_after_tap INTEGER, -- episodes whose request was lost between tap and responder [count]
  lost_answer_after_tap INTEGER, -- episodes whose answer was lost between tap and requester [count]
  nak_sequence INTEGER,      -- NAKs 60 [count]
  nak_fatal INTEGER,         -- NAKs 61 to 64 [count]
  rnr_naks INTEGER,          -- RNR NAKs [count]
  hole_to_nak_us REAL,       -- a hole at the tap to its NAK, median [us]
  nak_to_resend_us REAL,     -- NAK 60 to the first resend, median [us]
  response_holes INTEGER,    -- holes in READ answers [count]
  response_hole_frame INTEGER, -- frame after the first of them
  acks INTEGER,              -- ACKs [count]
  ackreq_per_packet REAL,    -- share of requests that ask for an ACK
  packets_per_ack REAL,      -- requests for each ACK
  acks_ahead INTEGER,        -- ACKs that name a PSN which was not sent, to the end of the capture [count]
  acks_ahead_frame INTEGER,  -- the first one's frame
  acks_ahead_seconds REAL,   -- from the last of them to the end of the capture [s]
  last_credits INTEGER,      -- credits in the last AETH [count]; NULL unlimited
  pmtu INTEGER,              -- path MTU seen [bytes]
  timeout_seen_ms REAL,      -- time between sends of one request, median [ms]
  timeout_code_seen INTEGER, -- the local ACK timeout nearest to it; NULL where the requester may adapt it (mig)
  retry_cnt_seen INTEGER,    -- resends before the requester gave up [count]; NULL where it may adapt them (mig)
  rnr_retry_seen INTEGER,    -- RNR resends before the requester gave up [count]
  rnr_timer_seen INTEGER,    -- code in the first RNR NAK
  rnr_timer_ms REAL,         -- its time [ms]
  rnr_wait_ms REAL,          -- wait after it [ms]
  cm_frame INTEGER,          -- frame of the CM REQ, where it is captured
  cm_starting_psn INTEGER,   -- first PSN that CM agreed on
  cm_pmtu INTEGER,           -- path MTU that CM agreed on [bytes]
  cm_timeout INTEGER,        -- local ACK timeout in the CM REQ
  cm_retry_cnt INTEGER,      -- retry_cnt in the CM REQ
  cm_rnr_retry INTEGER,      -- rnr_retry that CM agreed on
  sport INTEGER,             -- UDP source port of the first request
  other_sports INTEGER,      -- requests with another UDP source port [count]
  dscp INTEGER,              -- DSCP of the first request
  pkey INTEGER,              -- P_Key of the first request
  answer_dscp INTEGER,       -- DSCP of the first answer
  ce INTEGER,                -- requests marked CE [count]
  ce_share REAL,             -- their share
  ce_frame INTEGER,          -- the first one's frame
  answer_ce INTEGER,         -- answers marked CE [count]
  answer_ce_share REAL,      -- their share
  ect INTEGER,               -- requests with ECT(0) or ECT(1) [count]
  not_ect INTEGER,           -- requests without ECN [count]
  cnps INTEGER,              -- CNPs for the requester's QP [count]
  cnp_dscp INTEGER,          -- DSCP of the first CNP
  cnp_frame INTEGER,         -- its frame
  cnps_per_second REAL,      -- CNPs between the first and the last [1/s]
  cnp_gap_us_min REAL,       -- shortest time between two CNPs [us]
  ce_per_cnp REAL,           -- CE marks for each CNP
  ce_to_cnp_us REAL,         -- first CE mark to first CNP [us]
  gbps_before_cnp REAL,      -- payload in the millisecond before a CNP, mean [Gb/s]
  gbps_after_cnp REAL,       -- payload in the millisecond after a CNP, mean [Gb/s]
  cnp_recovery_ms REAL,      -- from a first CNP until the rate is nine tenths of what it was, median [ms]; NULL where it never was
  icrc_bad INTEGER,          -- requests whose ICRC is wrong [count]
  icrc_bad_frame INTEGER,    -- the first one's frame
  icrc_bad_resent INTEGER,   -- of their PSNs those that came again, and right [count]
  changed_resends INTEGER,   -- packets that came again with another payload before they were acknowledged [count]
  changed_frames TEXT,       -- frames of the first, before and again
  illegal INTEGER,           -- requests whose opcode cannot follow the one before [count]
  illegal_frame INTEGER,     -- the first one's frame
  bad_length INTEGER,        -- WRITEs whose RETH length is not that of their payload [count]
  bad_length_frame INTEGER,  -- the first one's frame
  msn_back INTEGER,          -- answers whose MSN is below the one before, though their PSN goes on [count]
  msn_back_frame INTEGER,    -- the first one's frame
  other_mac INTEGER,         -- packets of this flow with another source MAC address [count]
  other_mac_frame INTEGER,   -- the first one's frame
  other_ttl INTEGER,         -- packets with another TTL [count]
  other_ttl_frame INTEGER,   -- the first one's frame
  other_dscp INTEGER,        -- packets with another DSCP [count]
  other_dscp_frame INTEGER,  -- the first one's frame
  other_mig INTEGER,         -- packets with another MigReq bit [count]
  ip_id_steps INTEGER,       -- packets whose IP ID is a little above that of the packet before them [count]
  odd_ip_ids INTEGER,        -- packets whose IP ID is anywhere else [count]
  odd_ip_id_frame INTEGER,   -- the first one's frame
  mig INTEGER,               -- MigReq bit of its first request: adapters set it, rdma_rxe does not
  frames TEXT,               -- first and last frame
  filter TEXT,               -- tshark display filter that shows it
  origin TEXT,               -- path
  UNIQUE (node, flow, origin)
);

-- Answers of a flow that are no ACK: one row a flow and syndrome, with the request that the first one is about.
CREATE TABLE flow_nak (
  node TEXT,                 -- node, or the file's name where none is given
  flow INTEGER,              -- flow; NULL when no request in the capture fits
  src TEXT,                  -- requester's address
  dst TEXT,                  -- responder's address
  qpn INTEGER,               -- responder's QP number
  peer_qpn INTEGER,          -- requester's QP number
  syndrome INTEGER,          -- AETH syndrome
  name TEXT,                 -- its meaning (rdmadiag explain aeth)
  count INTEGER,             -- how many [count]
  psn INTEGER,               -- PSN of the first
  frames TEXT,               -- the first frames
  victim_frame INTEGER,      -- frame of the request that the first is about
  victim_opcode TEXT,        -- its opcode
  rkey INTEGER,              -- its R_Key
  va TEXT,                   -- its address, hexadecimal
  size_bytes INTEGER,        -- its DMA length [bytes]
  rkey_served_elsewhere INTEGER, -- requests with the same R_Key that were acknowledged before [count]
  memory_served_before INTEGER, -- of those: requests of the same kind for memory that has all of the refused one's [count]
  requests_after INTEGER,    -- requests sent after it, for NAKs that end a QP [count]
  flows_after INTEGER,       -- other flows between the two hosts that went on after it, for NAKs that end a QP [count]
  contradicted INTEGER,      -- 1 when a later ACK acknowledged what it refused
  never_sent INTEGER,        -- 1 when its PSN lies beyond everything sent
  below_window INTEGER,      -- 1 when its PSN was acknowledged before, or lies before the first request captured
  orphan INTEGER,            -- 1 when no request in the capture fits it
  requests_seen INTEGER,     -- for these: 1 when packets of the other direction are captured
  filter TEXT,               -- tshark display filter that shows it
  origin TEXT                -- path
);

-- Resends and holes of a flow by cause.
CREATE TABLE flow_resend (
  node TEXT,                 -- node, or the file's name where none is given
  flow INTEGER,              -- flow
  src TEXT,                  -- requester's address
  dst TEXT,                  -- responder's address
  qpn INTEGER,               -- responder's QP number
  peer_qpn INTEGER,          -- requester's QP number
  what TEXT,                 -- 'resend' or 'hole'
  cause TEXT,                -- as in the columns resends_... and holes_... of table flow
  episodes INTEGER,          -- episodes [count]
  packets INTEGER,           -- packets sent again, or PSNs passed over [count]
  payload_bytes INTEGER,     -- payload sent again [bytes]
  frames TEXT,               -- the first frames
  filter TEXT,               -- tshark display filter that shows them
  origin TEXT                -- path
);

-- CM handshakes in a capture (REQ, REP, RTU, REJ, DREQ as UD packets to QP 1). (IBA vol 1, 12.6)
CREATE TABLE cm_handshake (
  node TEXT,                 -- node, or the file's name where none is given
  src TEXT,                  -- who asked
  dst TEXT,                  -- who was asked
  state TEXT,                -- last message: REQ, MRA, REP, RTU, REJ (of the one asked), DREQ, DREP
  qpn INTEGER,               -- QP number of the one who asked
  peer_qpn INTEGER,          -- QP number of the one who was asked
  starting_psn INTEGER,      -- first PSN of the one who asked
  peer_starting_psn INTEGER, -- first PSN of the other
  path_mtu INTEGER,          -- path MTU [bytes]
  timeout INTEGER,           -- local ACK timeout code
  retry_cnt INTEGER,         -- retry_cnt
  rnr_retry INTEGER,         -- RNR retries asked of the peer
  peer_rnr_retry INTEGER,    -- the peer's
  req_sent INTEGER,          -- REQs sent [count]
  req_frame INTEGER,         -- frame of the first REQ
  rep_frame INTEGER,         -- frame of the REP
  rtu_frame INTEGER,         -- frame of the RTU
  rej_frame INTEGER,         -- frame of the REJ
  rej_reason INTEGER,        -- reason of the REJ
  rej_meaning TEXT,          -- its meaning
  dreq_frame INTEGER,        -- frame of the DREQ
  answer_ms REAL,            -- REQ to REP [ms]
  silent_seconds REAL,       -- from the REQ to the end of the capture [s]
  origin TEXT                -- path
);

-- PFC and global pause frames in a capture, one row a sender and kind. (IEEE 802.1Qbb, 802.3 annex 31B)
CREATE TABLE flow_control (
  node TEXT,                 -- node, or the file's name where none is given
  mac TEXT,                  -- MAC address of the sender
  kind TEXT,                 -- 'PFC' or 'global pause'
  frames INTEGER,            -- frames [count]
  first_frames TEXT,         -- the first of them
  pauses INTEGER,            -- frames that stop something [count]
  resumes INTEGER,           -- frames that only release [count]
  priorities TEXT,           -- priorities named by PFC frames
  first REAL,                -- time of the first [s since 1970]
  last REAL,                 -- time of the last [s since 1970]
  origin TEXT                -- path
);

-- Flows between two taps of one path: which packets only one of them saw, while both were capturing.
CREATE TABLE tap_loss (
  node TEXT,                 -- node
  src TEXT,                  -- sender's address
  dst TEXT,                  -- receiver's address
  qpn INTEGER,               -- DestQP
  both INTEGER,              -- packets seen at both taps [count]
  only_a INTEGER,            -- packets seen at the first tap only [count]
  only_b INTEGER,            -- packets seen at the second tap only [count]
  changed INTEGER,           -- packets seen at both with the same IP ID, length and PSN, and other bytes [count]
  a_first INTEGER,           -- 1 when packets pass the first tap before the second, 0 when after; NULL cannot be told
  told_by TEXT,              -- what says which tap is passed first: 'delay' (of both directions, without comparing clocks), 'losses' (taken for the side that has more)
  delay_us REAL,             -- first tap to second, median, by the clocks of the captures [us]
  file_a TEXT,               -- path of the first capture
  file_b TEXT,               -- path of the second
  frames_a TEXT,             -- the first frames of the first capture that the second lacks, else those that were changed
  frames_b TEXT,             -- the first frames of the second capture that the first lacks, else those that were changed
  origin TEXT                -- both paths
);

-- How busy a node is; one row a node. (/proc/stat, /proc/loadavg, /proc/meminfo, /proc/pressure)
CREATE TABLE pressure (
  node TEXT,                 -- node
  processors INTEGER,        -- processors that are on [count]
  running INTEGER,           -- threads that run or wait for a processor, at that moment [count] (procs_running)
  load1 REAL,                -- load average of one minute
  cpu_some_share REAL,       -- share of the last 10 s in which somebody waited for a processor (Documentation/accounting/psi.rst)
  cpu_full_share REAL,       -- share in which all did; 0 on the whole node, by definition
  memory_some_share REAL,    -- share of the last 10 s in which somebody waited for memory
  memory_full_share REAL,    -- share in which all did
  io_some_share REAL,        -- share of the last 10 s in which somebody waited for a block device
  io_full_share REAL,        -- share in which all did
  memory_total_kib INTEGER,  -- memory [KiB]
  memory_available_kib INTEGER, -- memory that can be had without swapping [KiB] (MemAvailable)
  swap_total_kib INTEGER,    -- swap [KiB]
  swap_free_kib INTEGER,     -- swap that is not used [KiB]
  origin TEXT,               -- where the row was read
  UNIQUE (node)
);

-- What became of a direction's packets between two taps of one path; only where it is known which tap is nearer to the sender.
CREATE TABLE tap_path (
  node TEXT,                 -- node
  src TEXT,                  -- sender's address
  dst TEXT,                  -- receiver's address
  both INTEGER,              -- packets that passed both taps [count]
  lost INTEGER,              -- packets that passed the sender's tap only [count]
  again INTEGER,             -- packets that came to the receiver's tap more often than they were sent [count]
  strange INTEGER,           -- packets at the receiver's tap that the sender's tap never saw [count]
  changed INTEGER,           -- packets that came with the IP ID, length and PSN of one that was sent, and with other bytes [count]
  changed_opcode INTEGER,    -- of those: with another opcode [count]
  changed_rkey INTEGER,      -- of those: with another R_Key [count]
  overtaken INTEGER,         -- packets that came after one that was sent later [count]
  marked INTEGER,            -- packets marked CE between the taps [count]
  again_lag_us REAL,         -- how long after the one before it such a packet came, median [us]
  lost_least_bytes INTEGER,  -- shortest lost packet, from the BTH on [bytes]
  passed_after_long INTEGER, -- packets at least as long that passed after the first loss [count]
  passed_after_short INTEGER, -- shorter packets that passed after the first loss [count]
  lost_at_end INTEGER,       -- packets that were lost behind the last that passed [count]
  longest_run INTEGER,       -- lost packets in a row, at most [count]
  runs INTEGER,              -- times that packets were lost, each with none passing in between [count]
  round_trip_us REAL,        -- from tap to tap and back, medians of both directions in the second half of the captures, whatever the clocks [us]
  wait_us_p5 REAL,           -- in the second half: how much longer the way took than for the quickest packet, 5th percentile [us]
  wait_us_p50 REAL,          -- the same, median [us]
  wait_us_p95 REAL,          -- the same, 95th percentile [us]
  wait_at_loss_us REAL,      -- how much longer than the quickest the last packet took that passed before each loss, 25th percentile: a queue that overflows is full then [us]
  wait_step_us REAL,         -- by how much it changes from one packet to the next that was sent 20 ms later or more, median [us]
  train_gap_us_p50 REAL,     -- time between arrivals of packets sent within 2 ms of each other, median [us]
  train_gap_us_p90 REAL,     -- the same, 90th percentile [us]
  train_gbps REAL,           -- rate at which such packets of 1000 bytes and more come out, median [Gb/s]
  sender_file TEXT,          -- path of the capture that is nearer to the sender
  receiver_file TEXT,        -- path of the other
  frames_lost TEXT,          -- the first packets that were lost, frames of sender_file
  frames_lost_at_end TEXT,   -- the first of those behind the last that passed, frames of sender_file
  frames_again TEXT,         -- the first packets that came again, frames of receiver_file, as all that follow
  frames_changed_payload TEXT, -- the first that were changed with opcode and R_Key as they were
  frames_changed_opcode TEXT, -- the first with another opcode
  frames_changed_rkey TEXT,  -- the first with another R_Key
  frames_overtaken TEXT,     -- the first that were overtaken
  frames_slow TEXT,          -- those of the second half that took longest
  frames_stop TEXT,          -- those of them that came last after another that was sent within 2 ms of them
  origin TEXT                -- both paths
);

-- The same by opcode and AETH syndrome.
CREATE TABLE tap_packet (
  node TEXT,                 -- node
  src TEXT,                  -- sender's address
  dst TEXT,                  -- receiver's address
  opcode INTEGER,            -- BTH opcode
  name TEXT,                 -- its name (rdmadiag explain opcode)
  syndrome INTEGER,          -- AETH syndrome, for answers
  both INTEGER,              -- as in tap_path [count]
  lost INTEGER,              -- as in tap_path [count]
  again INTEGER,             -- as in tap_path [count]
  strange INTEGER,           -- as in tap_path [count]
  changed INTEGER,           -- as in tap_path [count]
  changed_opcode INTEGER,    -- as in tap_path [count]
  changed_rkey INTEGER,      -- as in tap_path [count]
  overtaken INTEGER,         -- as in tap_path [count]
  marked INTEGER,            -- as in tap_path [count]
  psn_ahead INTEGER,         -- strange packets: PSNs from the last known packet of their flow, median [count]
  sender_file TEXT,          -- as in tap_path
  receiver_file TEXT,        -- as in tap_path
  frames_lost TEXT,          -- the first packets that were lost, frames of sender_file
  frames_strange TEXT,       -- the first strange packets, frames of receiver_file
  origin TEXT                -- both paths
);

-- What the site expects of its nodes (--expect FILE); without one, a node's own NICs are compared with each other.
CREATE TABLE expect (
  node TEXT,                 -- node
  name TEXT,                 -- nic_count, rate_gbps, fw_ver, mtu_bytes, pfc_priority, dscp, rails ...
  value,                     -- value
  origin TEXT,               -- expectation file
  UNIQUE (node, name)
);
