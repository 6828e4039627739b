// SPDX-License-Identifier: Apache-2.0
// Submits a shader that does nothing, a number of times.
#include "vkprog.h"

#include <inttypes.h>
#include <time.h>

// void main() {} for one invocation, in SPIR-V 1.0.
static const uint32_t shader[] = {
    0x07230203,     0x00010000, 0,  5,          0,    //
    2u << 16 | 17,  1,                                // OpCapability Shader
    3u << 16 | 14,  0,          1,                    // OpMemoryModel Logical GLSL450
    5u << 16 | 15,  5,          1,  0x6e69616d, 0,    // OpEntryPoint GLCompute %1 "main"
    6u << 16 | 16,  1,          17, 1,          1, 1, // OpExecutionMode %1 LocalSize 1 1 1
    2u << 16 | 19,  2,                                // %2 = OpTypeVoid
    3u << 16 | 33,  3,          2,                    // %3 = OpTypeFunction %2
    5u << 16 | 54,  2,          1,  0,          3,    // %1 = OpFunction %2 None %3
    2u << 16 | 248, 4,                                // OpLabel
    1u << 16 | 253,                                   // OpReturn
    1u << 16 | 56,                                    // OpFunctionEnd
};

struct work {
    VkShaderModule module;
    VkPipelineLayout layout;
    VkPipeline pipeline;
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkQueue queue;
};

static VkResult prepare_pipeline(const struct device *d, struct work *w) {
    VkShaderModuleCreateInfo module = {.sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO,
                                       .codeSize = sizeof shader,
                                       .pCode = shader};
    VkPipelineLayoutCreateInfo layout = {.sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
    VkResult result = VK_AT(d, vkCreateShaderModule)(d->handle, &module, NULL, &w->module);
    if (result == VK_SUCCESS)
        result = VK_AT(d, vkCreatePipelineLayout)(d->handle, &layout, NULL, &w->layout);
    VkComputePipelineCreateInfo pipeline = {
        .sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO,
        .stage = {.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO,
                  .stage = VK_SHADER_STAGE_COMPUTE_BIT,
                  .module = w->module,
                  .pName = "main"},
        .layout = w->layout};
    if (result == VK_SUCCESS)
        result =
            VK_AT(d, vkCreateComputePipelines)(d->handle, NULL, 1, &pipeline, NULL, &w->pipeline);
    return result;
}

static VkResult prepare_commands(const struct device *d, struct work *w) {
    VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    VkResult result = VK_AT(d, vkCreateCommandPool)(d->handle, &pool, NULL, &w->pool);
    VkCommandBufferAllocateInfo buffer = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
                                          .commandPool = w->pool,
                                          .commandBufferCount = 1};
    VkCommandBufferBeginInfo begin = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    if (result == VK_SUCCESS)
        result = VK_AT(d, vkAllocateCommandBuffers)(d->handle, &buffer, &w->commands);
    if (result != VK_SUCCESS)
        return result;
    VK_AT(d, vkBeginCommandBuffer)(w->commands, &begin);
    VK_AT(d, vkCmdBindPipeline)(w->commands, VK_PIPELINE_BIND_POINT_COMPUTE, w->pipeline);
    VK_AT(d, vkCmdDispatch)(w->commands, 1, 1, 1);
    result = VK_AT(d, vkEndCommandBuffer)(w->commands);
    VK_AT(d, vkGetDeviceQueue)(d->handle, 0, 0, &w->queue);
    return result;
}

void do_dispatch(void) {
    const struct device *d = device_named(1);
    struct work w = {0};
    VkResult result = prepare_pipeline(d, &w);
    if (result == VK_SUCCESS)
        result = prepare_commands(d, &w);
    VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                           .commandBufferCount = 1,
                           .pCommandBuffers = &w.commands};
    for (uint64_t i = 0, n = script_number(2); i < n && result == VK_SUCCESS; i++) {
        result = VK_AT(d, vkQueueSubmit)(w.queue, 1, &submit, NULL);
        if (result == VK_SUCCESS)
            result = VK_AT(d, vkQueueWaitIdle)(w.queue);
    }
    VK_AT(d, vkDestroyCommandPool)(d->handle, w.pool, NULL);
    VK_AT(d, vkDestroyPipeline)(d->handle, w.pipeline, NULL);
    VK_AT(d, vkDestroyPipelineLayout)(d->handle, w.layout, NULL);
    VK_AT(d, vkDestroyShaderModule)(d->handle, w.module, NULL);
    script_answer(result);
}
