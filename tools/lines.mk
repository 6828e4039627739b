# SPDX-License-Identifier: Apache-2.0
#
# $(call line,CC,$<) before the command of a recipe makes `make` print "CC file" instead of the
# command. V=1 prints the whole command, and make -s prints nothing.

line = $(if $(filter 1,$(V)),,@$(if $(findstring s,$(firstword -$(MAKEFLAGS))),,echo '$(1) $(2)'; ))
