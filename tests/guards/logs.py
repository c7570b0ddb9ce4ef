"""Excerpts of logs in public formats, drawn at random, which contain no personal identifier.

A format is one or more lines with fields in braces. ``FIELDS`` says how each field is drawn.
"""

# ruff: noqa: E501 -- a line of a log is not wrapped
from __future__ import annotations

import random
import re
import string
from collections.abc import Callable
from functools import partial

FORMATS = {
    "nginx access": '{ip} - - [{day}/{month}/{year}:{time} +0000] "GET /items/{id} HTTP/1.1" 200 {n5} "-" "Mozilla/5.0 (X11; Linux x86_64) Chrome/{n3}.0.{n4}.{n3}"\n'
    '{ip} - web [{day}/{month}/{year}:{time} +0000] "POST /api/v2/orders HTTP/2.0" 502 {n3} {n1}.{n3} {n1}.{n3}',
    "nginx error": "{year}/{mm}/{day} {time} [error] {pid}#{pid}: *{id} access forbidden by rule, client: {ip}, server: _, request: \"GET /.env HTTP/1.1\", host: \"{ip}\"\n"
    "{year}/{mm}/{day} {time} [warn] {pid}#0: {n4} worker_connections exceed open file resource limit: {n4}",
    "apache error": "[Sun {month} {day} {time} {year}] [error] [client {ip}] File does not exist: /var/www/html/scripts\n"
    "[Sun {month} {day} {time}.{n6} {year}] [authz_core:error] [pid {pid}:tid {n15}] [client {ip}:{port}] AH01630: client denied by server configuration",
    "denied clients": "client {ip} denied\nclient {ip} denied, {n3} rules checked\nhost {ip} {ip} unreachable\ncall from {ip} refused; contact {ip} instead",
    "hdfs": "{yymmdd} {hhmmss} {n3} INFO dfs.DataNode$PacketResponder: PacketResponder 1 for block blk_{n17} terminating\n"
    "{yymmdd} {hhmmss} {n2} INFO dfs.DataNode$PacketResponder: Received block blk_-{n19} of size 67108864 from /{ip}\n"
    "{yymmdd} {hhmmss} {n4} INFO dfs.FSNamesystem: BLOCK* NameSystem.addStoredBlock: blockMap updated: {ip}:50010 is added to blk_{n19} size {n8}",
    "openstack": "nova-api.log.1.{date}_{time} {date} {time}.{n3} {pid} INFO nova.osapi_compute.wsgi.server [req-{uuid} {hex32} {hex32} - - -] {ip} \"GET /v2/{hex32}/servers/detail HTTP/1.1\" status: 200 len: {n4} time: 0.{n7}\n"
    "nova-compute.log.1.{date}_{time} {date} {time}.{n3} {n4} INFO nova.compute.manager [req-{uuid} - - - - -] [instance: {uuid}] VM Paused (Lifecycle Event)\n"
    "nova-compute.log.1.{date}_{time} {date} {time}.{n3} {n4} INFO nova.virt.libvirt.imagecache [-] Removable base files: /var/lib/nova/instances/_base/{hex40}",
    "ssh": "{month} {day} {time} web-{n2} sshd[{pid}]: Failed password for root from {ip} port {port} ssh2\n"
    "{month} {day} {time} web-{n2} sshd[{pid}]: Received disconnect from {ip}: 11: Bye Bye [preauth]",
    "syslog 5424": "<{n2}>1 {date}T{time}.{n3}Z host-{n2} app {pid} ID{n2} [meta@{n5} seq=\"{n7}\" ip=\"{ip}\"] queue {n4} of {n5}",
    "cron": "{month} {day} {time} db{n1} CRON[{pid}]: (root) CMD (test -x /usr/sbin/anacron || run-parts /etc/cron.daily {n3} {n3} {n4})",
    "postgres": "{date} {time}.{n3} UTC [{pid}] LOG:  duration: {n4}.{n3} ms  statement: SELECT * FROM items WHERE id = {id}\n"
    "{date} {time} UTC {pid} {n7} LOG:  checkpoint complete: wrote {n5} buffers (3.{n1}%); write={n3}.{n3} s, sync=0.{n3} s\n"
    "{date} {time}.{n3} GMT [{pid}-{n2}] ERROR:  deadlock detected: process {pid} waits for ShareLock on transaction {id}; blocked by process {pid}",
    "mysql": "{date}T{time}.{n6}Z {n5} [Note] InnoDB: page_cleaner: 1000ms intended loop took {n4}ms (flushed={n3} and evicted=0)\n"
    "# Query_time: 0.{n6}  Lock_time: 0.{n6} Rows_sent: {n3}  Rows_examined: {n6}\nSET timestamp={epoch};\n{yymmdd} {time} {n5} [Warning] Aborted connection {n5} to db",
    "mongodb": '{{"t":{{"$date":"{date}T{time}.{n3}+00:00"}},"s":"I","c":"NETWORK","id":{n5},"ctx":"conn{n5}","attr":{{"remote":"{ip}:{port}","connectionId":{n6},"durationMillis":{n4}}}}}',
    "redis": "{pid}:M {day} {month} {year} {time}.{n3} * Background saving started by pid {pid}\n{pid}:C {day} {month} {year} {time}.{n3} * DB saved on disk, {n3} {n4} keys",
    "kubernetes": "I{mm}{day} {time}.{n6}       1 controller.go:{n3}] Syncing default/web-{hex10} generation {n7}\nE{mm}{day} {time}.{n6} {n7} reflector.go:{n3}] watch of *v1.Pod ended: {n3} {n3} {n4}",
    "kubectl": "NAME            READY   RESTARTS   AGE   IP\nweb-{hex10}-{n5}   1/1   {n3} ({n2}m ago)   {n3}d   {ip}\nworker-{n2}   0/1   {n4}   {n3}d   {ip}",
    "java": "{date} {time},{n3} INFO  [main] org.example.Service - Started in {n1}.{n3} seconds (process running for {n2}.{n3})\n"
    "{date} {time},{n3} {pid} WARN [http-nio-8080-exec-{n2}] o.e.Pool - {n3} {n3} {n4} connections active/idle/total",
    "java gc": "[{date}T{time}.{n3}+0000][{n4}.{n3}s][info][gc] GC({n4}) Pause Young (Normal) {n4}M->{n3}M({n4}M) {n2}.{n3}ms\n{n4}.{n3}: [GC (Allocation Failure) [PSYoungGen: {n6}K->{n5}K({n6}K)] {n6}K->{n6}K({n7}K), 0.{n7} secs]",
    "zookeeper": "{date} {time},{n3} - INFO  [QuorumPeer[myid=1]/0:0:0:0:0:0:0:0:2181:FastLeaderElection@{n3}] - Notification time out: {n5}\n{date} {time},{n3} - WARN  [SendWorker:{n12}:QuorumCnxManager$SendWorker@{n3}] - Interrupted",
    "spark": "{yy}/{mm}/{day} {time} INFO executor.Executor: Finished task {n2}.0 in stage {n2}.0 (TID {n4}). {n4} bytes result sent to driver\n{yy}/{mm}/{day} {time} INFO storage.BlockManager: Found block rdd_{n2}_{n2} locally",
    "bgl": "- {epoch} {year}.{mm}.{day} R02-M1-N0-C:J12-U11 {date}-{time}.{n6} R02-M1-N0-C:J12-U11 RAS KERNEL INFO {n7} double-hummer alignment exceptions",
    "thunderbird": "- {epoch} {year}.{mm}.{day} dn{n3} {month} {day} {time} dn{n3}/dn{n3} crond(pam_unix)[{pid}]: session closed for user root",
    "hpc": "{n6} node-{n3} unix.hw state_change.unavailable {epoch} 1 Component State Change: Component \\042alt0\\042 is in the unavailable state (HWID={n4})",
    "health app": "{year}{mm}{day}-{time}:{n3}|Step_LSC|{n8}|onStandStepChanged {n4}\n{year}{mm}{day}-{time}:{n3}|Step_SPUtils|{n8}|setTodayTotalDetailSteps={epoch}000##{n4}##{n6}##{n4}##{n5}##{n8}",
    "android": "{mm}-{day} {time}.{n3}  {n4}  {n4} D WindowManager: token=Token{{{hex10} ActivityRecord}}\n{mm}-{day} {time}.{n3} {pid} {pid} I PowerManagerService: ready=true,policy=3,wakefulness=1,wksummary=0x{n2},uasummary=0x1",
    "proxifier": "[{mm}.{day} {time}] chrome.exe - proxy.example:5070 close, {n4} bytes sent, {n5} bytes received, lifetime 00:{n2}",
    "mac": "{month} {day} {time} visitor-{n2}-{n3}-{n3}-{n2} kernel[0]: AppleThunderboltNHIType2::prePCIWake - power up complete - took {n1} us\n{month} {day} {time} host-{n2} QQ[{n5}]: FA||Url||taskID[{epoch}] dealloc",
    "windows": "{date} {time}, Info                  CBS    Loaded Servicing Stack v6.1.{n4}.{n5} with Core: C:\\Windows\\winsxs\\amd64_{hex10}_6.1.{n4}.{n5}_none_{hex10}\\cbscore.dll\n{date} {time}, Info                  CSI    0000{n4}@{year}/{n2}/{n2}:{time}.{n3} WcpInitialize (wcp.dll version 0.0.0.6) called (stack @0x7fed{n4}eb8)",
    "kernel": "[{n5}.{n6}] usb 1-1: new high-speed USB device number {n1} using xhci_hcd\n[ {n4}.{n6}] IN=eth0 OUT= MAC={mac} SRC={ip} DST={ip} LEN={n2} TTL={n2} ID={n5} PROTO=TCP SPT={port} DPT=22 WINDOW={n5} SEQ={epoch}\n[{n7}.{n6}] Out of memory: Killed process {pid} (java) total-vm:{n8}kB, anon-rss:{n7}kB",
    "haproxy": "haproxy[{pid}]: {ip}:{port} [{day}/{month}/{year}:{time}.{n3}] http-in static/srv1 10/0/{n2}/{n2}/{n3} 200 {n4} - - ---- 1/1/1/1/0 0/0 \"GET /index.html HTTP/1.1\"",
    "vpc flow": "2 {n12} eni-{hex17} {ip} {ip} {port} 443 6 {n2} {n4} {epoch} {epoch} ACCEPT OK\n2 {n12} eni-{hex17} {ip} {ip} 22 {port} 6 {n4} {n6} {epoch} {epoch} REJECT OK",
    "load balancer": 'https {date}T{time}.{n6}Z app/web/{hex16} {ip}:{port} {ip}:80 0.{n3} 0.{n3} 0.000 200 200 {n3} {n4} "GET https://example.com:443/ HTTP/1.1" "curl/7.{n2}.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2',
    "squid": "{epoch}.{n3}    {n3} {ip} TCP_MISS/200 {n5} GET http://example.com/{id} - HIER_DIRECT/{ip} text/html\n{epoch}.{n3} {n6} {ip} TCP_TUNNEL/200 {n4} CONNECT example.com:443 - HIER_DIRECT/{ip} -",
    "journald": "__REALTIME_TIMESTAMP={epoch}{n6}\n__MONOTONIC_TIMESTAMP={n10}\n_PID={pid}\n_UID=1000\n_BOOT_ID={hex32}\nMESSAGE=Listening on {ip} {port}\n_SOURCE_REALTIME_TIMESTAMP={epoch}{n6}",
    "journalctl": "{month} {day} {time} host-{n2} systemd[1]: Started session-{n4}.scope - Session {n4} of User root.\n-- Boot {hex32} --\n{month} {day} {time} host-{n2} kernel: Memory: {n7}K/{n8}K available ({n5}K kernel code, {n4}K rwdata, {n5}K rodata)",
    "stamp and pid": "{date} {time} {pid} {n4} INFO job {n3} done\n{date} {time}.{n3} {pid} {n4} {n3} DEBUG poll\n{year}{mm}{day} {hhmmss} {pid} INFO ready\n{yymmdd} {hhmmss} {pid} {n4} ready\n{mm}{day} {hhmmss} {n7} ready",
    "stamp and dotted quad": "{date} {time} {ip} GET /index.html {n3} {n4} {ip}\n{year}.{mm}.{day} {time} {ip} {ip} {n5}\n{epoch} {ip} {ip} {n3}",
    "iis": "{date} {time} {ip} GET /default.htm - 80 - {ip} Mozilla/5.0 200 0 0 {n3}\n{date} {time} W3SVC1 {ip} POST /api id={id} 443 - {ip} 500 {n2} {n2} {n4}",
    "logfmt": "ts={date}T{time}.{n3}Z level=info caller=main.go:{n3} msg=\"request done\" peer={ip}:{port} bytes={n8} trace_id={hex32} duration_us={n9}\nts={epoch}.{n9} level=warn pid={pid} seq={n10} shard={n3}/{n4}",
    "zap": '{{"level":"info","ts":{epoch}.{n7},"caller":"app/run.go:{n3}","msg":"step","pid":{pid},"offset":{n10},"lag":{n7},"peer":"{ip}"}}\n{{"time":{epoch}{n3},"hostname":"h-{n2}","reqId":"{hex10}","responseTime":{n2}.{n9}}}',
    "prometheus": 'http_requests_total{{code="200",instance="{ip}:9090"}} {n10} {epoch}{n3}\nprocess_resident_memory_bytes {n9}\nprocess_start_time_seconds {n1}.{n9}e+09\ngo_memstats_alloc_bytes {n8}',
    "ps": "USER       PID %CPU %MEM    VSZ   RSS TTY      STAT START   TIME COMMAND\nroot   {pid}  0.{n1}  {n1}.{n1} {n7} {n6} ?        Ssl  Nov{day}   {n3}:{n2} /usr/bin/app\nwww    {pid}  {n2}.{n1}  {n1}.{n1} {n8} {n7} ?        Sl   09:{n2}   0:{n2} nginx",
    "vmstat": " r  b   swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa\n 1  0 {n5} {n6} {n5} {n7}    0    0    {n2}    {n3}  {n3}  {n4} {n2}  1 87  0\n 0  0 {n5} {n7} {n6} {n7}    0    0     0    {n2}  {n4} {n5}  3  1 96  0",
    "meminfo": "MemTotal:       {n8} kB\nMemFree:         {n7} kB\nMem: {n8} {n7} {n6} {n5} {n6} {n8}\nSwap: {n7} {n5} {n7}",
    "df": "/dev/sda1      {n9} {n8} {n9}  {n2}% /\ntmpfs           {n8} {n4}  {n8}   1% /run\n/dev/nvme0n1p2 {n10} {n9} {n9} {n2}% /data",
    "ls": "-rw-r--r-- 1 root root {n8} Nov {day} 09:30 dump-{year}{mm}{day}-{hhmmss}.sql.gz\n-rw-r--r-- 1 1000 1000 {n10} {date} {time}.{n9} +0000 core.{pid}",
    "netstat": "tcp        0      {n2} {ip}:22      {ip}:{port}     ESTABLISHED {pid}/sshd\ntcp6  0 0 :::8080 :::* LISTEN {pid}/java\nudp {n6} {n6} {ip}:53 0.0.0.0:* {pid}/named",
    "tcpdump": "{time}.{n6} IP {ip}.{port} > {ip}.443: Flags [P.], seq {epoch}:{epoch}, ack {n10}, win {n3}, options [nop,nop,TS val {n10} ecr {epoch}], length {n4}",
    "strace": "{pid} {time}.{n6} futex(0x{hex10}, FUTEX_WAIT_PRIVATE, {n4}, NULL) = 0 <0.{n6}>\n[pid {pid}] lseek({n1}, {n9}, SEEK_SET) = {n9}",
    "docker": "{hex12}   app:{year}.{mm}.{day}   \"/run\"   {n2} days ago   Up {n2} days   {ip}:{port}->80/tcp   app-{n4}\nPULL sha256:{hex40} {n2}.{n2}MB/{n3}.{n1}MB {n5} {n6} {n7}",
    "training": "step {n7} loss 0.{n4} lr 3.{n2}e-05 tok/s {n6}\nepoch {n2} {n5}/{n5} {n3} {n3} {n4}\n[{date} {time},{n3}][{pid}] val {n1}.{n4} {n1}.{n4} {n1}.{n4}",
    "slurm": "{n7} {n7}.batch normal {n4} COMPLETED {date}T{time} {n3}-{time}\nJobID {n8} 0:0 {n9} {n8} {n5}",
    "git": "commit {hex40}\n {n3} files changed, {n5} insertions(+), {n4} deletions(-)\nindex {hex7}..{hex7} 100644\n@@ -{n4},{n2} +{n4},{n2} @@ {n3} {n3} {n4}",
    "mail server": "{month} {day} {time} mx{n1} postfix/smtpd[{pid}]: connect from unknown[{ip}]\n{month} {day} {time} mx{n1} postfix/qmgr[{pid}]: {hex10}: from=<>, size={n6}, nrcpt=1 (queue active)\n{epoch}.{n3} delivery {n7}: success: {ip}_accepted_message./Remote_host_said:_250_2.0.0_Ok:_queued_as_{hex10}/",
    "dns": "{day}-{month}-{year} {time}.{n3} client @0x7f{hex10} {ip}#{port} (example.com): query: example.com IN A +E(0)K ({ip})\nexample.com. 3600 IN SOA ns1.example.com. admin.example.com. {year}{mm}{day}{n2} 7200 3600 1209600 3600",
    "kafka": "[{date} {time},{n3}] INFO [Log partition=orders-{n2}, dir=/data] Rolled new log segment at offset {n10} in {n2} ms. (kafka.log.Log)\norders {n2} {n10} {n10} {n4} consumer-{n2}-{uuid} /{ip}",
    "elasticsearch": "[{date}T{time},{n3}][INFO ][o.e.c.r.a.AllocationService] [node-{n1}] current.health=\"GREEN\" [{n5}] overhead, spent [{n3}ms] in the last [1s]\ngreen open logs-{year}.{mm}.{day} {hex12} 5 1 {n9} {n6} {n2}.{n1}gb {n2}.{n1}gb",
}  # fmt: skip

MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def _hex(chance: random.Random, size: int) -> str:
    return "".join(chance.choices(string.digits + "abcdef", k=size))


def _number(chance: random.Random, size: int) -> int:
    return chance.randint(10 ** (size - 1), 10**size - 1)


Draw = Callable[[random.Random], object]
FIELDS: dict[str, Draw] = {
    "ip": lambda c: ".".join(str(c.randint(1, 254)) for _ in range(4)),
    "port": lambda c: c.randint(32768, 60999),
    "pid": lambda c: c.randint(100, 99999),
    "id": lambda c: c.randint(10**5, 10**8 - 1),
    "epoch": lambda c: c.randint(1_100_000_000, 1_799_999_999),
    "year": lambda c: c.randint(2005, 2026),
    "yy": lambda c: f"{c.randint(5, 26):02}",
    "mm": lambda c: f"{c.randint(1, 12):02}",
    "day": lambda c: f"{c.randint(1, 28):02}",
    "month": lambda c: c.choice(MONTHS),
    "time": lambda c: f"{c.randint(0, 23):02}:{c.randint(0, 59):02}:{c.randint(0, 59):02}",
    "date": lambda c: f"{c.randint(2005, 2026)}-{c.randint(1, 12):02}-{c.randint(1, 28):02}",
    "yymmdd": lambda c: f"{c.randint(5, 26):02}{c.randint(1, 12):02}{c.randint(1, 28):02}",
    "hhmmss": lambda c: f"{c.randint(0, 23):02}{c.randint(0, 59):02}{c.randint(0, 59):02}",
    "uuid": lambda c: "-".join(_hex(c, size) for size in (8, 4, 4, 4, 12)),
    "mac": lambda c: ":".join(_hex(c, 2) for _ in range(14)),
    **{f"n{size}": partial(_number, size=size) for size in range(1, 20)},
    **{f"hex{size}": partial(_hex, size=size) for size in (7, 10, 12, 16, 17, 32, 40)},
}
FIELD = re.compile(r"\{([a-z]+[0-9]*)\}")


def excerpts(format_name: str, count: int = 10) -> list[str]:
    """Draw excerpts of one format."""
    chance = random.Random(format_name)
    pattern = FORMATS[format_name]
    return [
        FIELD.sub(lambda field: str(FIELDS[field[1]](chance)), pattern)
        .replace("{{", "{")
        .replace("}}", "}")
        for _ in range(count)
    ]
