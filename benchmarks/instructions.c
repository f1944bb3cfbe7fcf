/*
 * The first process of the machine of benchmarks/instructions.py: loads the modules that lie beside
 * it, mounts the host's files, runs one command on them, turns the machine off.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_MODULES 16

static void check(int failed, const char *what)
{
	if (failed)
		perror(what);
}

static void mount_at(const char *kind, const char *target, unsigned long flags)
{
	mkdir(target, 0755);
	check(mount(kind[0] == 'v' ? "host" : kind, target, kind, flags, NULL), target);
}

/* Which of them need which others, the kernel says by refusing them. */
static void load_modules(void)
{
	char module[32];
	int pass, i, file, failed = 1;

	for (pass = 0; failed && pass < MOST_MODULES; pass++) {
		failed = 0;
		for (i = 0; snprintf(module, sizeof(module), "/module%d", i),
			    (file = open(module, O_RDONLY | O_CLOEXEC)) >= 0; i++) {
			if (syscall(SYS_finit_module, file, "", 0) && errno != EEXIST)
				failed = 1;
			close(file);
		}
	}
	check(failed, "modules");
}

int main(void)
{
	load_modules();
	mount_at("virtiofs", "/host", MS_RDONLY);
	mount_at("proc", "/host/proc", 0);
	mount_at("sysfs", "/host/sys", 0);
	mount_at("devtmpfs", "/host/dev", 0);
	mount_at("tmpfs", "/host/dev/shm", 0);
	mount_at("tmpfs", "/host/tmp", 0);
	check(chroot("/host") || chdir("/"), "chroot");
	if (fork() == 0) {
		setsid();
		setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", 1);
		execl("/bin/sh", "sh", "-c", COMMAND, NULL);
		_exit(127);
	}
	while (wait(NULL) > 0)
		;
	reboot(RB_POWER_OFF);
	return 1;
}
