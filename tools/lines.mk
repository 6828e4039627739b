# SPDX-License-Identifier: Apache-2.0
#
# $(call line,CC,$<) in front of a recipe's command has make print "CC file" in its place. V=1 shows
# the whole commands instead, and make -s nothing.

line = $(if $(filter 1,$(V)),,@$(if $(findstring s,$(firstword -$(MAKEFLAGS))),,echo '$(1) $(2)'; ))
