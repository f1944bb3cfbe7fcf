/* SPDX-License-Identifier: GPL-2.0 */
#ifndef _GWPORT_REPORT_H
#define _GWPORT_REPORT_H

#include <linux/list.h>
#include <net/pkt_sched.h>

extern struct list_head gwport_listed;	/* changed under RTNL */
extern const u32 gwport_layout[];

int gwport_dump_stats(struct Qdisc *sch, struct gnet_dump *d);
int gw_report_module_init(void);
void gw_report_module_exit(void);

#endif
