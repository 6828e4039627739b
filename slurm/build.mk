# The SPANK plug-in. It is built only by `make slurm`, because it needs Slurm's headers and belongs to the release of Slurm
# that they are from. Included by the top Makefile.

.PHONY: slurm
slurm: setup-slurm $(BUILD)/slurm/gpuarb.so ## build Slurm's plug-in (needs the headers of the Slurm that runs it)

$(BUILD)/slurm/gpuarb.so: slurm/gpuarb.c
	$(call line,CC,$@)mkdir -p $(@D) && $(CC) -std=c11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Werror -shared -fPIC -fvisibility=default -ffile-prefix-map=$(CURDIR)=. $(SLURM_CFLAGS) -o $@ $<

.PHONY: test-slurm
test-slurm: setup-full ## jobs of users under real slurmctld, slurmd and munged (root)
	@$(MAKE) --no-print-directory slurm test-build $(BUILD)/tools/testsum
	@GO='$(GO)' MAKE='$(MAKE)' FULL_STEPS= RUN='$(or $(RUN),TestFull)' tools/test-full.sh ./tests/slurm
